"""The tasks of the chaos, with effects that can be counted: rows of two tables of its own in the same database.

`chaos_effect` has no key, so that whatever is done twice is there twice.
"""

from __future__ import annotations

import time
from functools import partial
from random import Random

from django.db import connection

from scheduler_app import current_run, durable_task

ACCOUNTS = 20
BALANCE = 1_000
STEPS = ("reserve", "charge", "ship")
TABLES = """
CREATE TABLE chaos_account (id int PRIMARY KEY, balance bigint NOT NULL);
CREATE TABLE chaos_effect (run uuid NOT NULL, attempt int NOT NULL, kind text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
INSERT INTO chaos_account SELECT n, %(balance)s FROM generate_series(0, %(last)s) n;
"""


def make_tables() -> None:
    """Accounts with money on them, and an empty book."""
    with connection.cursor() as cursor:
        cursor.execute(TABLES, {"balance": BALANCE, "last": ACCOUNTS - 1})


def effect(kind: str) -> str:
    """Write down that this was done."""
    run = current_run()
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO chaos_effect (run, attempt, kind) VALUES (%s, %s, %s)", [run.id, run.attempt, kind])
    return kind


@durable_task(time_limit=60)
def short() -> int:
    """Do nothing."""
    return current_run().attempt


@durable_task(time_limit=60, retry_backoff=1, retry_backoff_max=2)
def working(seconds: float = 2.0) -> int:
    """Take its time."""
    run = current_run()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        run.check()
        time.sleep(0.05)
    return run.attempt


@durable_task(time_limit=60, max_retries=5, retry_backoff=1, retry_backoff_max=2)
def flaky() -> int:
    """Fail at the first attempt."""
    attempt = current_run().attempt
    if attempt == 1:
        raise ConnectionError("the first attempt always fails")
    return attempt


@durable_task(time_limit=60, max_retries=1, retry_backoff=1, retry_backoff_max=1)
def poison() -> None:
    """Fail at every attempt."""
    raise ValueError("this can never work")


@durable_task(time_limit=60, max_retries=20, retry_backoff=1, retry_backoff_max=2, transactional=True)
def transfer() -> None:
    """Move money between two accounts: that, its note and the run's success commit together or not at all."""
    choice = Random(current_run().id.int)
    source, target = choice.sample(range(ACCOUNTS), 2)
    amount = choice.randint(1, 100)
    with connection.cursor() as cursor:
        for account, change in sorted([(source, -amount), (target, amount)]):
            cursor.execute("UPDATE chaos_account SET balance = balance + %s WHERE id = %s", [change, account])
    effect("transfer")


@durable_task(time_limit=60, max_retries=20, retry_backoff=1, retry_backoff_max=2)
def stepwise() -> list[str]:
    """Three steps, each of which must be done once, however often the run is tried."""
    run = current_run()
    done = []
    for name in STEPS:
        done.append(run.step(name, partial(effect, name)))
        time.sleep(0.1)
    return done
