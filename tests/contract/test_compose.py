"""docker-compose.yml as `make test` uses it: what it is told by variables, and what it says of its services' health."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from scheduler_app.local import compose
from scheduler_app.local.services import KINDS

FILE = yaml.safe_load(compose.FILE.read_text(encoding="utf-8"))
PORTS = {"postgres": 5432, "rabbitmq": 5672, "redis": 6379}


@pytest.fixture(params=sorted(PORTS))
def key(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def service(key: str) -> Any:
    return FILE["services"][key]


def test_it_has_the_services_that_tests_need() -> None:
    assert set(FILE["services"]) == set(KINDS) == set(compose.URLS)


def test_each_listens_on_loopback_only_at_the_port_of_its_variable(key: str, service: Any) -> None:
    assert service["ports"] == [f"127.0.0.1:${{{key.upper()}_PORT:-{PORTS[key]}}}:{PORTS[key]}"]


def test_each_takes_its_password_from_its_variable(key: str, service: Any) -> None:
    assert f"${{{key.upper()}_PASSWORD:-everyslot}}" in service["environment"].values()


def test_each_says_whether_it_serves_so_that_up_can_wait(service: Any) -> None:
    check = service["healthcheck"]
    assert check["test"][0] in ("CMD", "CMD-SHELL")
    patience = int(check["interval"].rstrip("s")) * check["retries"]
    assert 30 <= patience <= 180, "seconds"


def test_each_image_is_pinned_to_a_supported_version(key: str, service: Any) -> None:
    assert re.fullmatch(rf"{key}:\d+(\.\d+)?", service["image"])


def test_a_service_is_started_and_stopped_under_a_project_of_its_own(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[str], dict[str, str]]] = []

    class Done:
        returncode = 0
        stderr = ""

    def record(argv: list[str], *, env: dict[str, str], **_: Any) -> Done:
        calls.append((argv, env))
        return Done()

    monkeypatch.setattr(compose.subprocess, "run", record)
    made = compose.prepare(key, KINDS[key].name)
    made.start()
    made.stop()
    (up, env), (down, _) = calls
    assert up[-1] == key
    assert {"up", "--wait"} < set(up)
    assert {"down", "--volumes"} < set(down)
    assert made.project in up
    assert made.project in down
    assert made.project != compose.prepare(key, "").project
    port, secret = env[f"{key.upper()}_PORT"], env[f"{key.upper()}_PASSWORD"]
    assert f":{secret}@127.0.0.1:{port}" in made.url
