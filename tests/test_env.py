"""The environment: read once, all faults at once, each with a hint; secrets also from files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from config.env import HINTS, Env, EnvironmentFault, read_env
from tests.support.programs import ROOT

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


# One bad value for each variable that can be bad; the others take any text.
NOT_USABLE = {
    "DATABASE_URL": "mysql://x/y", "BROKER_URL": "kafka://x", "REDIS_URL": "http://x", "DEBUG": "perhaps",
    "SECRET_KEY": "", "EVERYSLOT_QUEUES": "fast,slow", "EVERYSLOT_LEASE": "0", "EVERYSLOT_HEARTBEAT": "often",
    "EVERYSLOT_TERM": "-1", "EVERYSLOT_LOOP": "61", "EVERYSLOT_DISPATCH_WINDOW": "0.5",
    "EVERYSLOT_DISPATCH_TIMEOUT": "nan", "EVERYSLOT_PREFETCH": "1001",
    "EVERYSLOT_CANCEL_GRACE": "86401", "EVERYSLOT_UNKNOWN_TASK_WAIT": "-1", "EVERYSLOT_STOP_GRACE": "inf",
    "EVERYSLOT_SOFT_SHUTDOWN": "-0.1", "EVERYSLOT_CONSUMER_TIMEOUT": "1e300", "EVERYSLOT_SESSION_LOCKS": "maybe",
    "EVERYSLOT_LOG_LEVEL": "LOUD", "EVERYSLOT_EMAIL_URL": "http://mail.example.org",
}  # fmt: skip
TEXT = {
    "ALLOWED_HOSTS", "EVERYSLOT_MEDIA_ROOT", "EVERYSLOT_COMMANDS", "EVERYSLOT_HTTP_ALLOW", "EVERYSLOT_TASK_MODULES",
}  # fmt: skip


def test_all_faults_come_at_once_each_with_its_hint() -> None:
    assert set(NOT_USABLE) | TEXT == set(Env.model_fields)
    found = faults(NOT_USABLE)
    assert sorted(fault.split(":")[0] for fault in found) == sorted(NOT_USABLE)
    for fault in found:
        assert fault.endswith(f" - {HINTS[fault.split(':')[0]]}")


@pytest.mark.parametrize("name", Env.model_fields)
def test_every_variable_has_a_hint_and_its_example_can_be_used(name: str) -> None:
    examples = re.findall(r"e\.g\. (\S+)", HINTS[name])
    assert examples or name in ("DEBUG", "SECRET_KEY")
    for example in examples:
        read_env(GOOD | {name: example.rstrip(",;")})


def test_no_database_is_told_with_an_example() -> None:
    assert faults({"SECRET_KEY": "s"})[0].startswith("DATABASE_URL: ")


def test_a_secret_is_needed_unless_debugging() -> None:
    without = {"DATABASE_URL": GOOD["DATABASE_URL"]}
    assert "SECRET_KEY" in faults(without)[0]
    assert read_env(without | {"DEBUG": "true"}).SECRET_KEY == ""


def test_a_bad_value_does_not_hide_that_the_secret_is_missing() -> None:
    found = faults({"DATABASE_URL": "mysql://x/y", "SECRET_KEY": " "})
    assert [fault.split(":")[0] for fault in found] == ["DATABASE_URL", "SECRET_KEY"]


BAD = {
    "a port that is no number": ({"DATABASE_URL": "postgresql://u@h:port/x"}, "DATABASE_URL"),
    "a port out of range": ({"DATABASE_URL": "postgresql://u@h:99999/x"}, "DATABASE_URL"),
    "an unknown broker": ({"BROKER_URL": "redis://h/0"}, "BROKER_URL"),
    "queues named twice": ({"EVERYSLOT_QUEUES": "default,default"}, "EVERYSLOT_QUEUES"),
    "no default queue": ({"EVERYSLOT_QUEUES": "fast"}, "EVERYSLOT_QUEUES"),
    "no window": ({"EVERYSLOT_DISPATCH_WINDOW": "0"}, "EVERYSLOT_DISPATCH_WINDOW"),
    "words for a number": ({"EVERYSLOT_HEARTBEAT": "often"}, "EVERYSLOT_HEARTBEAT"),
    "a loop of minutes": ({"EVERYSLOT_LOOP": "61"}, "EVERYSLOT_LOOP"),
    "a window without end": ({"EVERYSLOT_DISPATCH_WINDOW": "1000001"}, "EVERYSLOT_DISPATCH_WINDOW"),
    "a host that is no address": ({"REDIS_URL": "redis://[::1/0"}, "REDIS_URL"),
    "mail over another protocol": ({"EVERYSLOT_EMAIL_URL": "imap://h"}, "EVERYSLOT_EMAIL_URL"),
    "mail without a protocol": ({"EVERYSLOT_EMAIL_URL": "mail.example.org"}, "EVERYSLOT_EMAIL_URL"),
    "mail without a host": ({"EVERYSLOT_EMAIL_URL": "smtp://?from=a@b"}, "EVERYSLOT_EMAIL_URL"),
    "mail to a port that is no number": ({"EVERYSLOT_EMAIL_URL": "smtp://h:port"}, "EVERYSLOT_EMAIL_URL"),
    "mail with a misspelt option": ({"EVERYSLOT_EMAIL_URL": "smtp://h?form=a@b"}, "EVERYSLOT_EMAIL_URL"),
    "mail from what is no address": ({"EVERYSLOT_EMAIL_URL": "smtp://h?from=jobs"}, "EVERYSLOT_EMAIL_URL"),
}


@pytest.mark.parametrize(("changes", "name"), BAD.values(), ids=BAD.keys())
def test_refused_by_name(changes: dict[str, str], name: str) -> None:
    assert [fault.split(":")[0] for fault in faults(GOOD | changes)] == [name]


DURATIONS = [name for name, field in Env.model_fields.items() if field.annotation is float]


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e300", "31622401", "-1"])
@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_is_a_number_of_seconds_that_can_pass(name: str, value: str) -> None:
    assert len(DURATIONS) == 10
    assert [fault.split(":")[0] for fault in faults(GOOD | {name: value})] == [name]


@pytest.mark.parametrize("name", [name for name in DURATIONS if name != "EVERYSLOT_LOOP"])
def test_a_duration_may_be_a_day(name: str) -> None:
    assert getattr(read_env(GOOD | {name: "86400"}), name) == 86_400


@pytest.mark.parametrize("url", ["smtp://ann:p%40ss@mail.example.org:587?from=jobs@example.org", "smtps://h"])
def test_mail_servers_that_are_known(url: str) -> None:
    assert url == read_env(GOOD | {"EVERYSLOT_EMAIL_URL": url}).EVERYSLOT_EMAIL_URL


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
    found = faults({"DATABASE_URL_FILE": str(tmp_path / "gone"), "SECRET_KEY_FILE": str(binary), "BROKER_URL": "x://"})
    assert sorted(fault.split(":")[0] for fault in found) == ["BROKER_URL", "DATABASE_URL_FILE", "SECRET_KEY_FILE"]


def test_a_value_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("x", encoding="utf-8")
    found = faults(GOOD | {"SECRET_KEY_FILE": str(path)})
    assert len(found) == 1
    assert "given twice" in found[0]


def test_the_faults_never_show_a_password() -> None:
    found = faults(
        {
            "DATABASE_URL": "postgres+x://ann:hunter2@h/x", "REDIS_URL": "ftp://:hunter2@h",
            "BROKER_URL": "amqp://ann:hunter2@h\N{FULLWIDTH SOLIDUS}x", "EVERYSLOT_EMAIL_URL": "smtp://ann:hunter2@h:x",
        }
    )  # fmt: skip
    assert len(found) == 5
    assert "hunter2" not in "".join(found)


def test_the_environment_is_frozen() -> None:
    env = read_env(GOOD)
    with pytest.raises(ValueError, match="frozen"):
        env.DEBUG = True
    assert isinstance(env, Env)


@pytest.mark.parametrize("program", [["manage.py", "jobs", "list"], ["-m", "celery", "-A", "config", "worker"]])
def test_a_program_that_cannot_start_says_the_faults_and_no_more(program: list[str]) -> None:
    bare = {"PATH": os.environ["PATH"]}
    command = [sys.executable, *program]
    done = subprocess.run(command, cwd=ROOT, env=bare, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    first, *faults = done.stderr.splitlines()
    assert first == "the environment is not usable:"
    assert [fault.split(":")[0] for fault in faults] == ["  - DATABASE_URL", "  - SECRET_KEY"]
