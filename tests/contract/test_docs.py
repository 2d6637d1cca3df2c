"""The pages say what the code does: nothing of the reference is left out, examples compile, links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from django.core.management import get_commands

from config.env import Env
from scheduler_app.conf import Conf
from scheduler_app.core.outcome import _AT_ONCE_DEAD, _EXHAUSTED, Way
from scheduler_app.core.plan import Skip
from scheduler_app.core.states import Status
from scheduler_app.lifecycle import catalog
from scheduler_app.lifecycle.loading import import_tasks
from scheduler_app.lifecycle.overview import JobState
from scheduler_app.management.cli import VERBS
from scheduler_app.models import Job, JobRun
from scheduler_app.models.job import CatchUp, ConcurrencyPolicy
from tests.support.definitions import known_tasks

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# `reason = 'replaced'`, `THEN 'expired'` of a claim, `cancel_runs(…, "requested")`, `_leave_behind(…, "edited")`
ASSIGNED = re.compile(r"""\breason\s*=\s*['"]([a-z_]+)['"]|THEN '([a-z_]+)'\n\s+WHEN r\.trigger|"(ignored)" if way""")
PASSED = re.compile(r"\b(?:cancel_runs|_leave_behind)\((.*)\)")


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def words(page: str) -> set[str]:
    """Everything that a page of the reference names in code style, and its parts."""
    found = re.findall(r"`([^`\n]+)`", (REFERENCE / page).read_text(encoding="utf-8"))
    return {part for word in found for part in (word, *re.split(r"[^\w.-]+", word))}


def reasons() -> set[str]:
    """Every code that the sources write as the reason of a run."""
    app = ROOT / "scheduler_app"
    sources = [*(app / "lifecycle").glob("*.py"), *(app / "store").glob("*.sql"), *(app / "core").glob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in sources]
    written = {code for text in texts for found in ASSIGNED.findall(text) for code in found if code}
    for text in texts:
        for arguments in PASSED.findall(text):
            written |= set(re.findall(r'"([a-z_]+)"', arguments))
    return written | {*Skip} | {*_AT_ONCE_DEAD.values()} | {*_EXHAUSTED.values()}


def test_the_reasons_that_are_looked_for_are_found() -> None:
    assert reasons() >= {"edited", "quarantined", "paused", "expired", "requested", "replaced", "ignored"}


@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        ("environment.md", set(Env.model_fields)),
        ("settings.md", set(Conf.__dataclass_fields__)),
        ("jobs.md", {field.name for field in Job._meta.concrete_fields}),
        ("jobs.md", {*ConcurrencyPolicy.values, *CatchUp.values, *JobState} - {"on demand"}),
        ("runs.md", {field.name for field in JobRun._meta.concrete_fields}),
        ("runs.md", {*Status}),
        ("runs.md", {*Way}),
        ("runs.md", reasons()),
        ("commands.md", {verb.name for verb in VERBS}),
    ],
)
def test_the_reference_names_everything(page: str, wanted: set[str]) -> None:
    assert wanted - words(page) == set()


def test_the_reference_names_no_variable_that_is_not_read() -> None:
    text = (REFERENCE / "environment.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `([A-Z_]+)`", text, re.MULTILINE))
    assert named == set(Env.model_fields)


def test_every_check_is_in_the_reference() -> None:
    source = (ROOT / "scheduler_app" / "checks.py").read_text(encoding="utf-8")
    ids = {f"everyslot.{each}" for each in re.findall(r"\b[EW]\d{3}\b", source.partition('"""')[2].partition('"""')[0])}
    assert ids
    assert ids - words("settings.md") == set()


def test_every_shipped_task_has_its_line() -> None:
    import_tasks()
    page = (ROOT / "docs" / "how-to" / "shipped-tasks.md").read_text(encoding="utf-8")
    names = {options.name for options in catalog.all_tasks() if options.name.startswith("tasks.")}
    assert {name for name in names if f"`{name}`" not in page and not name.startswith("tasks.examples.")} == set()


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for path in PAGES:
        for found in FENCE.finditer(path.read_text(encoding="utf-8")):
            if found[1] == language:
                yield f"{shown(path)}: {found[2].splitlines()[0]}", found[2]


@pytest.mark.parametrize(("where", "source"), list(blocks("python")))
@pytest.mark.django_db
def test_examples_compile_and_run(where: str, source: str) -> None:
    """All but those that go on with the tutorial's own module."""
    code = compile(source, where, "exec")
    if "from hello import" not in source:
        import_tasks()
        with known_tasks(*catalog.all_tasks()):  # what the example declares must not be known to other tests
            exec(code, {"__name__": "an_example"})


@pytest.mark.parametrize(("where", "source"), list(blocks("sh")))
def test_commands_that_are_shown_exist(where: str, source: str) -> None:
    verbs = {verb.name for verb in VERBS}
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"manage\.py jobs ([a-z]+)", source)) <= verbs
    assert set(re.findall(r"manage\.py ([a-z]+)", source)) <= set(get_commands())
    assert set(re.findall(r"^make ([a-z]+)", source, re.MULTILINE)) <= targets


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_links_lead_somewhere(path: Path) -> None:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    missing = []
    for link in LINK.findall(text):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, heading = link.partition("#")
        target = (path.parent / unquote(name)).resolve() if name else path
        if not target.exists() or (heading and heading not in headings(target)):
            missing.append(link)
    assert missing == []


def headings(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


def test_every_page_is_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        path = ahead.pop()
        if path in reached or path.suffix != ".md" or not path.exists():
            continue
        reached.add(path)
        links = LINK.findall(path.read_text(encoding="utf-8"))
        ahead += [(path.parent / link.partition("#")[0]).resolve() for link in links if "://" not in link]
    assert [shown(path) for path in PAGES if path not in reached] == []
