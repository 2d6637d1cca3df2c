// Live preview of a schedule: asks the server, whose parser is the one that runs it. Text goes in as text, never as HTML.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const box = document.querySelector("[data-everyslot-preview]");
  if (!box) return;
  const part = (name) => box.querySelector(`[data-part=${name}]`);
  const inputs = ["name", "schedule", "timezone", "gap", "fold"]
    .map((name) => document.getElementById(`id_${name}`))
    .filter((input) => input);
  let waiting = null;
  let asked = 0;

  const element = (tag, text) => {
    const made = document.createElement(tag);
    made.textContent = text;
    return made;
  };

  const show = (found) => {
    part("words").textContent = found.words;
    part("zone").textContent = found.timezone;
    part("faults").replaceChildren(...found.faults.map((fault) => element("li", fault)));
    part("faults").hidden = found.faults.length === 0;
    part("slots").replaceChildren(
      ...found.slots.map((slot) => {
        const row = document.createElement("tr");
        row.append(element("td", slot.local), element("td", slot.utc));
        return row;
      }),
    );
    part("table").classList.toggle("everyslot-one-zone", found.timezone === "UTC");
    part("table").hidden = found.slots.length === 0;
  };

  const ask = async () => {
    const mine = ++asked;
    const query = new URLSearchParams({ job: box.dataset.job });
    for (const input of inputs) query.set(input.name, input.value);
    try {
      const answer = await fetch(`${box.dataset.everyslotPreview}?${query}`, { credentials: "same-origin" });
      if (answer.ok && mine === asked) show(await answer.json());
    } catch {
      // the page keeps its last preview; saving checks again
    }
  };

  for (const input of inputs) {
    input.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(ask, 250);
    });
  }
});
