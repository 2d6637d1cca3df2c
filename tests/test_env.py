"""The environment: read once, all faults at once, each with a hint; secrets also from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.env import Env, EnvironmentFault, read_env

GOOD = {"DATABASE_URL": "postgresql://u:p@db:5432/everyslot", "SECRET_KEY": "s" * 50}


def faults(environ: dict[str, str]) -> list[str]:
    with pytest.raises(EnvironmentFault) as caught:
        read_env(environ)
    assert all(fault in str(caught.value) for fault in caught.value.faults)
    return caught.value.faults


def test_the_least_that_is_needed() -> None:
    env = read_env(GOOD)
    assert (env.DEBUG, env.BROKER_URL, env.REDIS_URL) == (False, "", "")
    assert env.queues == ["default", "fast", "slow"]
    assert env.allowed_hosts == ["localhost", "127.0.0.1", "[::1]"]


def test_values_are_read_as_what_they_are() -> None:
    env = read_env(GOOD | {"DEBUG": "true", "EVERYSLOT_LEASE": "45", "EVERYSLOT_SESSION_LOCKS": "no"})
    assert (env.DEBUG, env.EVERYSLOT_LEASE, env.EVERYSLOT_SESSION_LOCKS) == (True, 45.0, False)


def test_an_empty_variable_is_one_that_was_not_given() -> None:
    assert read_env(GOOD | {"BROKER_URL": "", "EVERYSLOT_LEASE": ""}).EVERYSLOT_LEASE == 30


def test_all_faults_come_at_once_each_with_its_hint() -> None:
    found = faults(
        {
            "DATABASE_URL": "mysql://x/y", "BROKER_URL": "kafka://x", "REDIS_URL": "http://x", "DEBUG": "perhaps",
            "EVERYSLOT_LEASE": "0", "EVERYSLOT_QUEUES": "fast,slow", "EVERYSLOT_LOG_LEVEL": "LOUD",
        }
    )  # fmt: skip
    named = {fault.split(":")[0] for fault in found}
    assert named >= {
        "DATABASE_URL", "BROKER_URL", "REDIS_URL", "DEBUG", "EVERYSLOT_LEASE", "EVERYSLOT_QUEUES",
        "EVERYSLOT_LOG_LEVEL",
    }  # fmt: skip
    hinted = {
        name: next(fault for fault in found if fault.startswith(f"{name}:")) for name in ("DATABASE_URL", "REDIS_URL")
    }
    assert "postgresql://user:password@host:5432/name" in hinted["DATABASE_URL"]
    assert "redis://host:6379/0" in hinted["REDIS_URL"]


def test_no_database_is_told_with_an_example() -> None:
    assert faults({"SECRET_KEY": "s"})[0].startswith("DATABASE_URL: ")


def test_a_secret_is_needed_unless_debugging() -> None:
    without = {"DATABASE_URL": GOOD["DATABASE_URL"]}
    assert "SECRET_KEY" in faults(without)[0]
    assert read_env(without | {"DEBUG": "true"}).SECRET_KEY == ""


BAD = {
    "a port that is no number": ({"DATABASE_URL": "postgresql://u@h:port/x"}, "DATABASE_URL"),
    "a port out of range": ({"DATABASE_URL": "postgresql://u@h:99999/x"}, "DATABASE_URL"),
    "an unknown broker": ({"BROKER_URL": "redis://h/0"}, "BROKER_URL"),
    "queues named twice": ({"EVERYSLOT_QUEUES": "default,default"}, "EVERYSLOT_QUEUES"),
    "no default queue": ({"EVERYSLOT_QUEUES": "fast"}, "EVERYSLOT_QUEUES"),
    "no window": ({"EVERYSLOT_DISPATCH_WINDOW": "0"}, "EVERYSLOT_DISPATCH_WINDOW"),
    "words for a number": ({"EVERYSLOT_HEARTBEAT": "often"}, "EVERYSLOT_HEARTBEAT"),
    "a loop of minutes": ({"EVERYSLOT_LOOP": "61"}, "EVERYSLOT_LOOP"),
}


@pytest.mark.parametrize(("changes", "name"), BAD.values(), ids=BAD.keys())
def test_refused_by_name(changes: dict[str, str], name: str) -> None:
    assert [fault.split(":")[0] for fault in faults(GOOD | changes)] == [name]


@pytest.mark.parametrize("scheme", ["amqp", "amqps", "pyamqp", "pgq+postgresql"])
def test_brokers_that_are_known(scheme: str) -> None:
    assert f"{scheme}://h/x" == read_env(GOOD | {"BROKER_URL": f"{scheme}://h/x"}).BROKER_URL


def test_a_secret_may_lie_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("from-a-file\n", encoding="utf-8")
    env = read_env({"DATABASE_URL": GOOD["DATABASE_URL"], "SECRET_KEY_FILE": str(path)})
    assert env.SECRET_KEY == "from-a-file"


def test_a_file_that_cannot_be_read_is_told_beside_the_other_faults(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    found = faults({"DATABASE_URL_FILE": str(tmp_path / "gone"), "REDIS_URL_FILE": str(binary), "BROKER_URL": "x://"})
    assert {fault.split(":")[0] for fault in found} >= {"DATABASE_URL_FILE", "REDIS_URL_FILE", "BROKER_URL"}


def test_a_value_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("x", encoding="utf-8")
    assert "given twice" in faults(GOOD | {"SECRET_KEY_FILE": str(path)})[0]


def test_the_faults_never_show_a_password() -> None:
    found = faults(GOOD | {"DATABASE_URL": "postgres+x://ann:hunter2@h/x", "REDIS_URL": "ftp://:hunter2@h"})
    assert "hunter2" not in "".join(found)


def test_the_environment_is_frozen() -> None:
    env = read_env(GOOD)
    with pytest.raises(ValueError, match="frozen"):
        env.DEBUG = True
    assert isinstance(env, Env)
