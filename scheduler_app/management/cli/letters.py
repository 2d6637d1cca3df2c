"""`jobs letters` and `jobs discard`: what was given up, and the decision that it stays so."""

from __future__ import annotations

import argparse
from typing import Any

from scheduler_app.lifecycle.discard import discard as discard_letters
from scheduler_app.management.cli.output import Output, instant
from scheduler_app.management.cli.verb import OK, REFUSED, Verb, limit, positive, who
from scheduler_app.models import DeadLetter

COLUMNS = ("LETTER", "TASK", "RUN", "BURIED", "WHY", "DECISION")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="those that were redriven or discarded too")
    limit(parser)


def run(options: argparse.Namespace, out: Output) -> int:
    letters = DeadLetter.objects.order_by("-id")
    if not options.all:
        letters = letters.filter(redriven_at=None, discarded_at=None)
    found = list(letters[: options.limit])
    out.data([_values(each) for each in found])
    out.table(COLUMNS, [_row(each) for each in found], "There are no such dead letters.")
    return OK


def discard_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "letters", nargs="+", type=positive, help="numbers of dead letters, as `jobs letters` shows them"
    )
    parser.add_argument("--reason", required=True, help="why nobody is to work on this again, for the record")


def discard(options: argparse.Namespace, out: Output) -> int:
    done = discard_letters(options.letters, who(), options.reason)
    out.data({"discarded": done})
    out.table(("LETTER", "WHAT"), [(each, "discarded") for each in done], empty="")
    left = [each for each in options.letters if each not in done]
    known = {each.pk: each for each in DeadLetter.objects.filter(pk__in=left)}
    for each in left:
        said = f"it is {known[each].decision} already" if each in known else "there is no such dead letter"
        out.refusal(f"{each}: {said}")
    return REFUSED if left else OK


def _values(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.pk,
        "task": letter.task,
        "run": letter.run_id,
        "attempt": letter.attempt,
        "queue": letter.queue,
        "reason": letter.reason,
        "detail": letter.detail,
        "headers": letter.headers,
        "body": letter.body,
        "buried_at": letter.buried_at,
        "decision": letter.decision,
        "decided_by": letter.decided_by,
        "decision_reason": letter.decision_reason,
    }


def _row(letter: DeadLetter) -> tuple[object, ...]:
    by = f" by {letter.decided_by}" if letter.decided_by else ""
    because = f": {letter.decision_reason}" if letter.decision_reason else ""
    detail = letter.detail.strip().rpartition("\n")[2][:120]
    why = ": ".join(part for part in (letter.reason, detail) if part)
    decision = f"{letter.decision}{by}{because}"
    return letter.pk, letter.task or "(no task)", letter.run_id or "", instant(letter.buried_at), why, decision


LETTERS = Verb(
    "letters", "dead letters: runs and messages that were given up", arguments, run, "jobs letters --all -n 50"
)
DISCARD = Verb(
    "discard",
    "decide that dead letters stay dead",
    discard_arguments,
    discard,
    'jobs discard 17 18 --reason "the customer has left"',
)
