"""Calling URLs: what an answer means for the run, and which addresses are never called.

Only the loopback is ever called; names are resolved by the tests themselves.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from scheduler_app.core.errors import GiveUp, RetryLater
from scheduler_app.testing import run_as
from tasks import http, outgoing
from tests.tasks.web import Reply, Web

pytestmark = pytest.mark.django_db
Resolve = Callable[..., None]


@pytest.fixture(autouse=True)
def resolve(monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """Names have the addresses given here, and no other; a connection off the loopback fails the test."""
    known: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def getaddrinfo(host: str, *arguments: Any, **options: Any) -> Any:
        if host in known:
            return [entry for address in known[host] for entry in real(address, *arguments, **options)]
        flags = options.pop("flags", 0) | socket.AI_NUMERICHOST
        return real(host, *arguments, **options, flags=flags)

    def connect(address: tuple[str, int], *arguments: Any, **options: Any) -> socket.socket:
        assert address[0] == "127.0.0.1", f"a connection to {address} was tried"
        return real_connect(address, *arguments, **options)

    import urllib3.util.connection as connections

    real_connect = connections.create_connection
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(connections, "create_connection", connect)
    return lambda host, *addresses: known.__setitem__(host, list(addresses))


def answers(web: Web, status: int, **headers: str) -> None:
    web.reply = lambda _: Reply(status, b"no", {name.replace("_", "-"): value for name, value in headers.items()})


def test_the_answer_is_kept_and_cut(web: Web) -> None:
    web.reply = lambda _: Reply(201, b"x" * 20_000, {"Content-Type": "text/plain"})
    done = run_as(http.call_url, web.url("/a?b=c"), "put", "text", {"X-Mine": "1"})
    assert (done["status"], done["content_type"], len(done["body"]), done["whole"]) == (201, "text/plain", 16384, False)
    asked = web.requests[0]
    assert (asked.method, asked.path, asked.body) == ("PUT", "/a?b=c", b"text")
    assert (asked.headers["X-Mine"], asked.headers["Content-Type"]) == ("1", "text/plain; charset=utf-8")
    assert asked.headers["Host"] == f"127.0.0.1:{web.port}"


def test_a_huge_answer_is_not_read_to_its_end(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "MAX_ANSWER", 1000)
    web.reply = lambda _: Reply(200, b"x" * 100_000)
    done = run_as(http.call_url, web.url(), "GET")
    assert (len(done["body"]), done["whole"]) == (1000, False)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(web: Web, status: int) -> None:
    answers(web, status)
    with pytest.raises(http.TargetFailed, match=str(status)):
        run_as(http.call_url, web.url())


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422])
def test_what_does_not_pass_is_given_up(web: Web, status: int) -> None:
    answers(web, status)
    with pytest.raises(GiveUp, match=str(status)):
        run_as(http.call_url, web.url())


def test_a_redirect_is_not_followed(web: Web) -> None:
    answers(web, 302, Location=web.url("/other"))
    with pytest.raises(GiveUp, match="redirects are not followed"):
        run_as(http.call_url, web.url())
    assert [asked.path for asked in web.requests] == ["/"]


@pytest.mark.parametrize(("text", "seconds"), [("7", 7.0), ("0", 1.0), ("-3", 1.0), ("999999", 3600.0)])
def test_retry_after_says_when_to_try_again(web: Web, text: str, seconds: float) -> None:
    answers(web, 429, Retry_After=text)
    with pytest.raises(RetryLater) as later:
        run_as(http.call_url, web.url())
    assert later.value.after == seconds


def test_retry_after_may_be_a_date(web: Web) -> None:
    answers(web, 503, Retry_After=format_datetime(datetime.now(UTC) + timedelta(minutes=5), usegmt=True))
    with pytest.raises(RetryLater) as later:
        run_as(http.call_url, web.url())
    assert 200 < later.value.after <= 300


def test_waiting_for_the_other_side_costs_attempts_after_a_day(web: Web) -> None:
    answers(web, 503, Retry_After="7")
    with pytest.raises(http.TargetFailed):
        run_as(http.call_url, web.url(), scheduled_for=datetime.now(UTC) - timedelta(days=1))


def test_an_unreadable_retry_after_is_none(web: Web) -> None:
    answers(web, 503, Retry_After="soon")
    with pytest.raises(http.TargetFailed):
        run_as(http.call_url, web.url())


def test_no_connection_is_tried_again(settings: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        settings.EVERYSLOT_HTTP_ALLOW = [f"127.0.0.1:{port}"]
        with pytest.raises(OSError, match="refused"):
            run_as(http.call_url, f"http://127.0.0.1:{port}/")


PRIVATE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "168.63.129.16",
    "::1",
    "::",
    "fe80::1",
    "fc00::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_name_with_a_private_address_is_not_called(resolve: Resolve, address: str) -> None:
    resolve("rebound.example", address)
    with pytest.raises(GiveUp, match="not a public address"):
        run_as(http.call_url, "http://rebound.example/")


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_itself_is_not_called(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(GiveUp, match="not a public address"):
        run_as(http.call_url, f"http://{host}:8080/")


def test_one_private_address_among_public_ones_is_enough_to_refuse(resolve: Resolve) -> None:
    resolve("both.example", "8.8.8.8", "10.0.0.1")
    with pytest.raises(GiveUp, match="not a public address"):
        run_as(http.call_url, "https://both.example/")


def test_public_addresses_pass_the_judgement(resolve: Resolve) -> None:
    resolve("public.example", "8.8.8.8", "2606:4700::1111")
    assert outgoing.judge("public.example", 443) == "8.8.8.8"


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "017700000001", "127.1"])
def test_other_spellings_of_the_loopback_are_not_called(host: str) -> None:
    with pytest.raises((GiveUp, OSError)):
        run_as(http.call_url, f"http://{host}/")


def test_the_connection_goes_to_the_judged_address_though_the_name_has_changed(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the name is resolved once, so a second answer is never asked for."""
    asked: list[str] = []
    faked = socket.getaddrinfo

    def once(host: str, *arguments: Any, **options: Any) -> Any:
        if host == "rebound.example":
            asked.append(host)
            host = "127.0.0.1" if len(asked) == 1 else "10.0.0.1"
        return faked(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", once)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.outgoing.settings.EVERYSLOT_HTTP_ALLOW", [f"rebound.example:{web.port}"])
        run_as(http.call_url, web.url(host="rebound.example"))
    assert asked == ["rebound.example"]
    assert web.requests[0].headers["Host"] == f"rebound.example:{web.port}"


def test_an_allowed_target_is_allowed_at_its_port_only(web: Web, settings: Any) -> None:
    assert run_as(http.call_url, web.url())["status"] == 200
    settings.EVERYSLOT_HTTP_ALLOW = ["127.0.0.1:1"]
    with pytest.raises(GiveUp, match="not a public address"):
        run_as(http.call_url, web.url())


def test_proxies_and_credentials_of_the_environment_are_not_used(
    web: Web, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ann password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert run_as(http.call_url, web.url())["status"] == 200
    assert "Authorization" not in web.requests[0].headers


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "//example.org/",
        "http://",
        "http:///path",
        "http://ann:secret@example.org/",
        "http://example.org:99999/",
        "http://example.org:0/",
        "http://[::1/",
        "http://example.org/" + "x" * 2000,
        "",
    ],
)
def test_what_is_no_plain_web_address_is_refused(url: str) -> None:
    with pytest.raises(GiveUp, match="not sent"):
        run_as(http.call_url, url)


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "idempotency-key", "CONNECTION"])
def test_headers_that_the_task_sets_are_refused(web: Web, name: str) -> None:
    with pytest.raises(GiveUp, match="set by the task itself"):
        run_as(http.call_url, web.url(), headers={name: "x"})
    assert web.requests == []


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nb"])
def test_a_header_cannot_bring_another_one(web: Web, value: str) -> None:
    with pytest.raises(GiveUp, match="not sent"):
        run_as(http.call_url, web.url(), headers={"X-Mine": value})
    assert web.requests == []


def test_an_unknown_method_is_refused(web: Web) -> None:
    with pytest.raises(GiveUp, match="method must be one of"):
        run_as(http.call_url, web.url(), "CONNECT")
    assert web.requests == []
