"""Real workers fed with every kind of bad message: each becomes a dead letter, none kills the worker, none vanishes."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from celery import current_app

from scheduler_app.broker.publisher import publisher
from scheduler_app.broker.topology import DEAD_QUEUE, dead_queue, exchange, work_queue
from scheduler_app.core.message import ATTEMPT_HEADER, BODY, Hint, headers
from scheduler_app.models import DeadLetter, JobRun
from scheduler_app.models.ids import new_id
from scheduler_app.store.define import database_now
from tasks.examples import poison
from tests.support.brokers import broker_url
from tests.support.definitions import a_run
from tests.support.programs import Programs, wait_until
from tests.support.workload import echo, lines, noted, plain

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]

HUGE = "x" * 200 * 1024
TWICE, DOUBLES = "doubled", 5


@dataclass(frozen=True)
class Sent:
    """One message; by default the hint for a run that does not exist."""

    body: bytes | str = BODY
    content_type: str = "application/json"
    content_encoding: str = "utf-8"
    headers: dict[str, Any] | None = field(default_factory=dict)


def hint(task: str = noted.name, run_id: UUID | None = None, attempt: int = 0, **other: Any) -> dict[str, Any]:
    """The headers of a hint, with others in place of them; `...` takes one away."""
    given = headers(Hint(run_id or new_id(), task, attempt, "default", 4)) | other
    return {name: value for name, value in given.items() if value is not ...}


def changed(**other: Any) -> Sent:
    return Sent(headers=hint(**other))


def body(raw: bytes | str, **how: Any) -> Sent:
    return Sent(body=raw, headers=hint(), **how)


def numbered(attempt: object) -> Sent:
    return changed(**{ATTEMPT_HEADER: attempt})


def ordinary(**other: Any) -> Sent:
    """A message for an ordinary Celery task, which would note that it ran."""
    return Sent(body='[["/nowhere", "no"], {}, {}]', headers=hint(plain.name, **{ATTEMPT_HEADER: ...}, **other))


def dead_kinds() -> dict[str, Sent]:
    """What no worker can run."""
    return {
        "not JSON": body("{not json"),
        "an empty body": body(b""),
        "bad UTF-8": body(b'[["\xff\xfe"], {}, {}]'),
        "NULs": body(b"\x00" * 100),
        "half a message": body(BODY[:-4]),
        "a pickle": body(pickle.dumps([[], {}, {}]), content_type="application/x-python-serialize",
                         content_encoding="binary"),
        "YAML": body("- []", content_type="application/x-yaml"),
        "a content type that nobody knows": body(BODY, content_type="application/x-nobody"),
        "a content encoding that nobody knows": body(b"\xff[]", content_encoding="utf-nobody"),
        "a compression that nobody knows": changed(compression="nobody"),
        "a compression that it has not": changed(compression="application/x-gzip"),
        "a compression that is a number": changed(compression=7),
        "a compression that is an object": changed(compression={"type": "gzip"}),
        "a huge body that is no call": body(f'"{HUGE}"'),
        "a body nested too deep": body("[" * 100_000 + "]" * 100_000),
        "a marked type that nobody knows": body('[[{"__type__": "nobody", "__value__": 1}], {}, {}]'),
        "a body that is an object": body('{"task": "x"}'),
        "a body that is a text": body('"text"'),
        "a body that is null": body("null"),
        "a body that is empty": body("[]"),
        "a body of two parts": body("[[], {}]"),
        "a body of four parts": body("[[], {}, {}, {}]"),
        "arguments that are an object": body("[{}, {}, {}]"),
        "keyword arguments that are a list": body("[[], [], {}]"),
        "a third part that is a text": body('[[], {}, "embed"]'),
        "no task": changed(task=...),
        "a task that is a number": changed(task=7),
        "a task that is an object": changed(task={"name": noted.name}),
        "a task that is null": changed(task=None),
        "a task that nobody knows": changed(task="tests.nobody"),
        "a task without a name": changed(task=""),
        "a task with a NUL": changed(task=f"{noted.name}\x00"),
        "no id": changed(id=...),
        "an id that is no UUID": changed(id="seven"),
        "an id that is a number": changed(id=7),
        "an id that is a list": changed(id=[str(new_id())]),
        "an id with a NUL": changed(id="a\x00b"),
        "no attempt": numbered(...),
        "a negative attempt": numbered(-1),
        "an attempt beyond its column": numbered(2**31),
        "a huge attempt": numbered(2**62),
        "an attempt that is text": numbered("0"),
        "an attempt that is true": numbered(True),
        "an attempt that is a fraction": numbered(0.5),
        "a time limit that is a number": changed(timelimit=7),
        "a time limit that is a text": changed(timelimit="ab"),
        "a time limit of three": changed(timelimit=[1, 2, 3]),
        "a time limit of texts": changed(timelimit=["1", "2"]),
        "stamped headers that are a text": changed(stamped_headers="stamp"),
        "stamps that are a list": changed(stamped_headers=["stamp"], stamps=["x"]),
        "a NUL in another header": changed(**{"other": "a\x00b", ATTEMPT_HEADER: ...}),
        "a header that is marked as an instant and is none, and no attempt": changed(
            **{"other": marked("datetime"), ATTEMPT_HEADER: ...}
        ),
        "a secret in another header": changed(**{"api_token": "hunter2", ATTEMPT_HEADER: ...}),
        "forged deaths that are a text": changed(**{"x-death": "often", ATTEMPT_HEADER: ...}),
        "forged deaths that are numbers": changed(**{"x-death": [1, 2]}),
        "forged deaths of a task that nobody knows": changed(**{"x-death": [1, 2], "task": "tests.nobody"}),
        "a forged count of deliveries": changed(**{"x-delivery-count": "many", ATTEMPT_HEADER: ...}),
        "many deep headers": changed(**{"deep": deep(12), "many": list(range(1000)), ATTEMPT_HEADER: ...}),
        "an ordinary task's expiry that is no instant": ordinary(expires="whenever"),
        "an ordinary task's start that is no instant": ordinary(eta="tomorrow"),
        "an ordinary task's start that is a list": ordinary(eta=[1]),
    }  # fmt: skip


def forgotten_kinds(finished: UUID) -> dict[str, Sent]:
    """Hints that claim nothing: they are acknowledged, since the row says all there is to say."""
    return {
        "a run that does not exist": changed(),
        "a run that has ended": changed(run_id=finished, attempt=1),
        "an older attempt of a run that has ended": changed(run_id=finished, attempt=0),
        "a huge body, whose arguments nobody reads": body(f'[["{HUGE}"], {{}}, {{}}]'),
        "an expiry that is no instant, which only the row has": changed(expires="whenever"),
        "a start that is no instant, which only the row has": changed(eta=[1]),
        "JSON that names an encoding that nobody knows": body(BODY, content_encoding="utf-nobody"),
        "a header that is marked as an instant and is none": changed(other=marked("datetime")),
        "a header that is marked as what nobody knows": changed(other=marked("nobody")),
    }


def marked(kind: str) -> dict[str, str]:
    """What Kombu's JSON takes for a value of another type."""
    return {"__type__": kind, "__value__": "rubbish"}


def deep(depth: int) -> Any:
    return {"inner": deep(depth - 1)} if depth else "bottom"


def publish(broker: str, messages: dict[str, Sent]) -> None:
    """Each with its kind as a header, by which its dead letter is known."""
    with current_app.connection_for_write(broker_url(broker)) as connection:
        # Unconfirmed, what the broker has not yet read when the channel closes may be gone.
        connection.transport_options = connection.transport_options | {"confirm_publish": True}
        producer = connection.Producer(auto_declare=False)
        for kind, sent in messages.items():
            producer.publish(
                sent.body.encode() if isinstance(sent.body, str) else sent.body,
                exchange=exchange.name,
                routing_key="default",
                content_type=sent.content_type,
                content_encoding=sent.content_encoding,
                headers=None if sent.headers is None else sent.headers | {"kind": kind},
                retry=False,
            )


def left(broker: str) -> dict[str, int]:
    """How many messages each queue holds, once nobody has any of them."""
    with current_app.connection_for_write(broker_url(broker)) as connection:
        channel = connection.channel()
        queues = (work_queue("default"), dead_queue())
        return {queue.name: queue.bind(channel).queue_declare(passive=True).message_count for queue in queues}


def buried() -> Counter[str]:
    return Counter(each.get("kind", "no headers") for each in DeadLetter.objects.values_list("headers", flat=True))


def test_every_bad_message_becomes_one_dead_letter_and_the_worker_goes_on(
    run: Programs, broker: str, notes: Path
) -> None:
    dead = dead_kinds() | {"no headers": Sent(body='{"id": "x"}', headers=None)}
    assert len(dead) >= 50
    finished = a_run(status="succeeded", task=noted.name)
    doubled = a_run(
        task=noted.name, args=[str(notes), TWICE], trigger="code", dispatched_at=database_now(), dispatches=1
    )
    worker = run.worker().ready()
    publish(broker, dead)
    publish(broker, forgotten_kinds(finished.id))
    publish(broker, {f"double {number}": changed(run_id=doubled.id) for number in range(DOUBLES)})
    honest = noted.delay(str(notes), "honest")

    assert honest.get(timeout=60) == "honest"
    wait_until(lambda: buried() == Counter(dead.keys()), 60, "every bad message to be buried")
    wait_until(lambda: JobRun.objects.get(pk=doubled.pk).status == "succeeded", what="the doubled run")
    worker.end()
    assert left(broker) == {"default": 0, DEAD_QUEUE: 0}, "something was neither worked on nor buried"
    assert buried() == Counter(dead.keys()), "and once"
    assert sorted(lines(notes)) == ["doubled 1", "honest 1"]
    assert JobRun.objects.get(pk=doubled.pk).attempts == 1
    finished.refresh_from_db()
    assert (finished.status, finished.attempts) == ("succeeded", 1)
    assert "CRITICAL" not in worker.log
    assert worker.log.count("ready.") == 1, "the consumer had to begin anew"
    for letter in DeadLetter.objects.all():
        assert (letter.queue, letter.reason) == ("default", "rejected"), letter.headers
        assert letter.headers["x-death"], "it came through the broker's dead-letter exchange, or says that it did"
    assert "hunter2" not in str(DeadLetter.objects.values_list("headers", flat=True))


def test_a_run_that_dies_has_exactly_one_dead_letter_which_came_by_the_broker(run: Programs) -> None:
    worker = run.worker().ready()
    died = poison.apply_async(max_attempts=1)
    wait_until(lambda: JobRun.objects.get(pk=died.id).status == "dead", what="the run to die")
    wait_until(lambda: DeadLetter.objects.filter(headers__has_key="x-death").exists(), what="its message")
    worker.end()
    letter = DeadLetter.objects.get()
    assert (str(letter.run_id), letter.attempt, letter.task) == (died.id, 1, poison.name)
    assert letter.reason == JobRun.objects.get(pk=died.id).reason, "why the run died, not what the broker says of it"
    assert letter.detail
    (death,) = letter.headers["x-death"]
    assert (death["queue"], death["reason"]) == ("default", "rejected")


UNREADABLE: dict[str, dict[str, Any]] = {
    "a mark of a type that nobody knows": {"args": [{"__type__": "nobody", "__value__": 1}]},
    "a mark of an instant that is none": {"payload": {"value": {"__type__": "datetime", "__value__": "soon"}}},
    "arguments that are an object": {"args": {"value": 1}},
    "arguments that are a text": {"args": "value"},
    "keyword arguments that are a list": {"payload": ["value"]},
}


@pytest.mark.parametrize("broker", ["postgres"], indirect=True)
def test_a_run_whose_row_cannot_be_read_ends_dead_and_the_worker_goes_on(run: Programs, notes: Path) -> None:
    """`.delay()` refuses such arguments; a row of an older version, or by other hands, may hold them all the same."""
    rows = {kind: a_run(task=echo.name, trigger="code", **columns) for kind, columns in UNREADABLE.items()}
    worker = run.worker().ready()
    publisher().publish([Hint(row.id, echo.name, 0, "default", 4) for row in rows.values()])
    assert noted.delay(str(notes), "honest").get(timeout=60) == "honest"
    wait_until(lambda: JobRun.objects.filter(status="dead").count() == len(rows), what="the runs to die")
    for kind, row in rows.items():
        row.refresh_from_db()
        assert (row.reason, row.attempts) == ("failed", 1), kind
        assert "arguments cannot be read" in row.last_error, kind
    wait_until(lambda: DeadLetter.objects.exclude(headers={}).count() == len(rows), what="their messages")
    assert worker.log.count("ready.") == 1
