"""Effects outside of the run's own row, with real workers: made once, and never by an attempt that is over."""

from __future__ import annotations

import signal
from collections import Counter
from itertools import count
from pathlib import Path
from threading import Lock

import pytest
from django.contrib.auth.models import Group

from scheduler_app.models import Attempt, JobRun
from tests.support.programs import Programs, wait_until
from tests.support.workload import fencing, noted_pid, paying
from tests.tasks.web import Asked, Reply, serving

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]

on_postgres = pytest.mark.parametrize("broker", ["postgres"], indirect=True)
QUICK = {"EVERYSLOT_LOOP": "0.1"}
SHORT = {"EVERYSLOT_LEASE": "3", "EVERYSLOT_HEARTBEAT": "1"}


class Payments:
    """A payment server: one charge a key (201), and the same receipt for every later request with it (200)."""

    def __init__(self) -> None:
        self.receipts: dict[str, str] = {}
        self.requests: Counter[str] = Counter()
        self._lock = Lock()

    def __call__(self, asked: Asked) -> Reply:
        key = asked.headers["Idempotency-Key"]
        with self._lock:
            self.requests[key] += 1
            known = key in self.receipts
            receipt = self.receipts.setdefault(key, f"receipt {len(self.receipts)}")
        return Reply(200 if known else 201, receipt.encode())


@pytest.mark.parametrize("number", [3, pytest.param(100, marks=[pytest.mark.proof, pytest.mark.timeout(1200)])])
@on_postgres
def test_a_worker_killed_between_each_charge_and_its_finish_charges_once_a_run(run: Programs, number: int) -> None:
    payments = Payments()
    run.beat(**QUICK).leads()
    with serving() as web:
        web.reply = payments
        results = [paying.delay(web.url("/charges")) for _ in range(number)]
        deaths = 0
        for each in count():
            worker = run.worker(f"worker-{each}", **QUICK)
            wait_until(lambda w=worker: not w.alive or ended() == number, 60, "a death or the end")  # type: ignore[misc]
            if worker.alive:
                break
            assert worker.wait() == -signal.SIGKILL
            deaths += 1
            assert deaths <= number
    assert deaths == number
    keys = [result.id for result in results]
    # One key a run is one charge a run. Each asked again after its death, and once more if its end was not yet written
    # when the worker died of the next one.
    assert set(payments.requests) == set(keys) == set(payments.receipts)
    assert min(payments.requests.values()) == 2
    for result in results:
        assert result.get(timeout=5) == payments.receipts[result.id]
    assert ended() == number
    # A run may also have been claimed ahead, and not begun, by a worker that died of another one.
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"worker_lost", "returned"}


def ended() -> int:
    return JobRun.objects.filter(status="succeeded").count()


@on_postgres
def test_an_attempt_frozen_past_its_lease_cannot_make_a_fenced_write(
    run: Programs, notes: Path, tmp_path: Path
) -> None:
    run.beat(**SHORT | QUICK).leads()
    for name in ("one", "two"):
        run.worker(name, EVERYSLOT_PREFETCH="1", **SHORT | QUICK).ready()
    result = fencing.delay(str(notes), "written by", str(tmp_path / "gate-{attempt}"))
    wait_until(lambda: noted_pid(notes, "start", 1), what="attempt 1")
    stopped = run.worker_of(noted_pid(notes, "start", 1)).freeze()
    wait_until(lambda: noted_pid(notes, "start", 2), what="attempt 2")
    (tmp_path / "gate-1").touch()
    for each in stopped:
        each.resume()
    wait_until(lambda: noted_pid(notes, "refused", 1), what="the refusal")
    assert not Group.objects.exists()
    (tmp_path / "gate-2").touch()
    assert result.get(timeout=30) is None
    assert list(Group.objects.values_list("name", flat=True)) == ["written by 2"]
