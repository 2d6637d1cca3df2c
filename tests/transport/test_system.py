"""Real Celery workers on the transport: remote control, events, acknowledgements, crashes, a restarted server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from celery import Celery
from kombu import Queue

from scheduler_app.transport import schema
from tests.support.missing import without
from tests.transport.postgres import fresh_database, private_server
from tests.transport.waiting import wait_until

pytestmark = pytest.mark.system
ROOT = Path(__file__).parents[2]
Database = psycopg.Connection[Any]


class Workers:
    """Worker processes on one database, and an application to talk to them."""

    def __init__(self, url: str, folder: Path) -> None:
        self.notes = folder / "notes"
        self.notes.touch()
        self._folder = folder
        self._url = f"pgq+{url}"
        self.app = Celery("transport", broker=self._url, set_as_current=False)
        self.app.conf.update(
            task_default_queue="work", task_queues=[Queue("work", routing_key="work", no_declare=True)]
        )
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *arguments: str, lease: float = 60) -> subprocess.Popen[bytes]:
        """A worker that is ready."""
        worker = self.launch(name, *arguments, lease=lease)
        wait_until(lambda: "ready." in self.log(name), 60, f"{name} is ready")
        return worker

    def launch(self, name: str, *arguments: str, lease: float = 60) -> subprocess.Popen[bytes]:
        """A worker that has been started, no more."""
        # Celery's command line takes BROKER_URL for its option --broker, above what the application says.
        others = ("DJANGO_SETTINGS_MODULE", "BROKER_URL")
        environment = {key: value for key, value in os.environ.items() if key not in others}
        environment |= {
            "TRANSPORT_BROKER": self._url,
            "TRANSPORT_NOTES": str(self.notes),
            "TRANSPORT_LEASE": str(lease),
        }
        with (self._folder / f"{name}.log").open("wb") as log:
            worker = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "celery",
                    "-A",
                    "tests.transport.worker_app",
                    "worker",
                    "-n",
                    name,
                    "-l",
                    "INFO",
                    "-c",
                    "1",
                    *arguments,
                ],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.running.append(worker)
        return worker

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    def send(self, task: str, *arguments: object, **options: object) -> None:
        self.app.send_task(f"tests.transport.worker_app.{task}", arguments, **options)

    def noted(self) -> list[str]:
        return self.notes.read_text().splitlines()

    def wait_for(self, beginning: str, count: int = 1, seconds: float = 30) -> list[str]:
        """The noted lines that begin so, once there are `count`."""

        def found() -> list[str] | None:
            lines = [line for line in self.noted() if line.startswith(beginning)]
            return lines if len(lines) >= count else None

        lines = wait_until(found, seconds, f"{count} notes {beginning!r} in {self.noted()}")
        assert lines is not None
        return lines

    def let_go(self) -> None:
        Path(f"{self.notes}.go").touch()

    def stop(self) -> None:
        self.let_go()
        for worker in self.running:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.terminate()
        for worker in self.running:
            try:
                worker.wait(20)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self.app.close()  # its pools stay, since they are shared by all applications of this process


@pytest.fixture
def workers(database: Database, transport_database: str, tmp_path: Path) -> Iterator[Workers]:
    started = Workers(transport_database, tmp_path)
    yield started
    started.stop()


def settled(database: Database) -> Callable[[], bool]:
    """Whether no message is left in `work`."""
    return lambda: (
        database.execute("SELECT count(*) FROM everyslot_transport_message WHERE queue = 'work'").fetchone() == (0,)
    )


def test_two_workers_answer_pings_and_their_events_reach_every_listener(workers: Workers) -> None:
    workers.start("one@test", "-E")
    workers.start("two@test", "-E")
    answers = workers.app.control.ping(timeout=10, limit=2)
    assert sorted(name for answer in answers for name in answer) == ["one@test", "two@test"]
    listeners: list[set[str]] = [set(), set()]
    ready = threading.Barrier(3)

    def listen(heard: set[str]) -> None:
        with workers.app.connection_for_read() as connection:
            receiver = workers.app.events.Receiver(
                connection, handlers={"task-succeeded": lambda event: heard.add(event["hostname"])}
            )
            receiver.on_consume_ready = lambda *_args, **_kwargs: ready.wait(30)
            events = receiver.itercapture(timeout=30)
            while not heard:
                next(events)

    threads = [threading.Thread(target=listen, args=(heard,)) for heard in listeners]
    for thread in threads:
        thread.start()
    ready.wait(30)
    workers.send("say", "hello")
    for thread in threads:
        thread.join(40)
    assert listeners[0] == listeners[1] != set()


def test_workers_mingle_and_gossip(workers: Workers) -> None:
    workers.start("one@test", "-l", "DEBUG")
    workers.start("two@test")
    assert "mingle: sync with 1 nodes" in workers.log("two@test")
    wait_until(lambda: "two@test joined the party" in workers.log("one@test"), 30, "one hears of two")


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_pools_without_an_event_loop_settle_their_messages(workers: Workers, database: Database, pool: str) -> None:
    workers.start("one@test", "-P", pool, "-Q", "work")
    for number in range(20):
        workers.send("say", f"word{number}")
    workers.wait_for("word", count=20)
    wait_until(settled(database), what="all is acknowledged")


def test_remote_control_shuts_a_worker_down(workers: Workers) -> None:
    worker = workers.start("one@test")
    workers.app.control.shutdown()
    assert worker.wait(30) == 0


def test_a_warm_stop_finishes_the_running_task_and_leaves_the_rest(workers: Workers, database: Database) -> None:
    worker = workers.start("one@test", "--prefetch-multiplier=4")
    workers.send("hold", "first", 20)
    workers.wait_for("first begins")
    for word in ("second", "third"):
        workers.send("say", word)
    wait_until(
        lambda: (
            database.execute(
                "SELECT count(*) FROM everyslot_transport_message WHERE queue = 'work' AND holder IS NOT NULL"
            ).fetchone()
            == (3,)
        ),
        what="all three are prefetched",
    )
    worker.terminate()
    wait_until(lambda: "Warm shutdown" in workers.log("one@test"), what="it is stopping")
    workers.let_go()
    assert worker.wait(30) == 0
    assert database.execute(
        "SELECT count(*) FROM everyslot_transport_message WHERE queue = 'work' AND holder IS NULL"
    ).fetchone() == (2,)
    assert database.execute(
        "SELECT count(*) FROM everyslot_transport_holder h WHERE 'work' = ANY (h.queues)"
    ).fetchone() == (0,)
    workers.start("two@test")
    workers.wait_for("second two@test")
    workers.wait_for("third two@test")
    wait_until(settled(database), what="all is acknowledged")


def test_a_killed_workers_task_runs_again_elsewhere_after_its_lease(workers: Workers, database: Database) -> None:
    worker = workers.start("one@test", lease=2)
    workers.send("hold", "job", 60)
    workers.wait_for("job begins one@test False")
    worker.kill()
    workers.start("two@test", lease=2)
    workers.wait_for("job begins two@test True")
    workers.let_go()
    workers.wait_for("job ends two@test")
    wait_until(settled(database), what="it is acknowledged")


def test_a_frozen_worker_loses_its_messages_and_connects_anew(workers: Workers, database: Database) -> None:
    worker = workers.start("one@test", lease=1)
    workers.send("hold", "job", 60)
    workers.wait_for("job begins one@test False")
    worker.send_signal(signal.SIGSTOP)
    workers.start("two@test", lease=1)
    workers.wait_for("job begins two@test True")
    worker.send_signal(signal.SIGCONT)
    told = ("no sign of life", "Connection to broker lost")  # frozen inside a sweep, its very session is ended
    wait_until(lambda: any(text in workers.log("one@test") for text in told), what="it is told")
    workers.let_go()
    workers.wait_for("job ends two@test")
    wait_until(settled(database), what="it is acknowledged by its new holder")
    wait_until(lambda: len(workers.app.control.ping(timeout=2, limit=2)) == 2, 30, "both answer")


def test_a_refused_task_and_one_over_the_delivery_limit_become_dead_letters(
    workers: Workers, database: Database
) -> None:
    workers.start("one@test", "-Q", "work")
    with workers.app.connection_for_write() as connection:
        Queue("dead")(connection.default_channel).declare()
    workers.send("refuse")
    workers.send("requeue")
    dead = "SELECT deaths #>> '{first,reason}' FROM everyslot_transport_message WHERE queue = 'dead' ORDER BY 1"
    wait_until(lambda: len(database.execute(dead).fetchall()) == 2, what="two dead letters")
    assert database.execute(dead).fetchall() == [("delivery_limit",), ("rejected",)]
    assert workers.noted().count("requeue") == 3


def test_a_server_restart_under_a_worker_leads_to_a_new_connection(tmp_path: Path) -> None:
    with private_server() as server:
        if server is None:
            without("PostgreSQL's programs are needed to restart a server: install postgresql")
        with fresh_database(server.url) as url:
            workers = Workers(url, tmp_path)
            try:
                worker = workers.start("one@test")
                workers.send("hold", "before", 60)
                workers.wait_for("before begins")
                server.stop()
                wait_until(lambda: "Trying to re-establish" in workers.log("one@test"), 30, "the loss is noticed")
                server.start()
                workers.let_go()
                workers.send("say", "after")
                workers.wait_for("after one@test", seconds=60)
                assert worker.poll() is None
                workers.wait_for("before begins one@test True", seconds=20)
                with psycopg.connect(url, autocommit=True) as database:
                    wait_until(settled(database), 30, "all is acknowledged")
            finally:
                workers.stop()


def test_a_worker_started_before_the_migration_waits_for_it(server_url: str, tmp_path: Path) -> None:
    with (
        fresh_database(server_url, tables=False) as url,
        psycopg.connect(url, autocommit=True) as database,
    ):
        workers = Workers(url, tmp_path)
        try:
            workers.launch("one@test")
            wait_until(lambda: "run `manage.py migrate`" in workers.log("one@test"), 60, "the worker complains")
            for statement in schema.CREATE:
                database.execute(statement)
            wait_until(lambda: "ready." in workers.log("one@test"), 60, "it is ready")
        finally:
            workers.stop()
