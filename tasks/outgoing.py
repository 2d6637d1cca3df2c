"""Requests to addresses that somebody else chose, without letting them reach our own network.

Guaranteed: a connection goes only to an address that was judged at the time of sending, because the name is resolved
once, every address it has is judged, and the connection is made to the judged address (so a name that changes in
between changes nothing). Redirects are not followed, proxies and credentials of the environment are not used. It would
break if anything resolved the name again after the judgement. Internal targets are named in EVERYSLOT_HTTP_ALLOW.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import requests
from AntiSSRF import IPAddressRanges  # type: ignore[import-untyped]
from django.conf import settings
from requests.adapters import HTTPAdapter

DEFAULT_PORTS = {"http": 80, "https": 443}
CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 15.0  # between two pieces of an answer
WHOLE_SECONDS = 60.0  # for all of the answer's body
MAX_ANSWER = 1024 * 1024
MAX_URL = 2000
_DENIED = tuple(ip_network(text) for text in IPAddressRanges.recommended_latest)


class Forbidden(Exception):
    """The target must not be called; the message says why. Trying again does not help."""


class AnswerTooSlow(Exception):
    """The answer was not complete in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is at most 1 MB; `whole` says whether that was all of it."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool


def send(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
    """Send one request and read its answer.

    Raises Forbidden, AnswerTooSlow, OSError (a name that cannot be resolved) and what `requests` raises.
    """
    check_url(url)
    with requests.Session() as session:
        session.trust_env = False
        session.mount("http://", _Judging())
        session.mount("https://", _Judging())
        with session.request(
            method,
            url,
            headers=dict(headers),
            data=body,
            timeout=(CONNECT_SECONDS, SILENCE_SECONDS),
            allow_redirects=False,
            stream=True,
        ) as response:
            content, whole = _read(response)
            return Answer(response.status_code, response.headers, content, whole)


def check_url(url: str) -> None:
    """Refuse what no request should be made of; raises Forbidden."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Forbidden(f"the URL cannot be read: {error}") from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or port == 0:
        raise Forbidden("the URL must be http:// or https:// with a host")
    if parts.username is not None or parts.password is not None:
        raise Forbidden("the URL must not hold a user name or password; use a header")
    if len(url) > MAX_URL:
        raise Forbidden(f"the URL is longer than {MAX_URL} characters")


def judge(host: str, port: int) -> str:
    """The address to connect to; raises Forbidden if any address of the host is not a public one.

    Hosts in EVERYSLOT_HTTP_ALLOW (`host:port`) may have any address.
    """
    found = socket.getaddrinfo(host, port, socket.AF_UNSPEC, socket.SOCK_STREAM)
    addresses = [ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
    if not addresses:
        raise Forbidden(f"{host} has no address")
    if f"{host}:{port}" not in settings.EVERYSLOT_HTTP_ALLOW and not all(map(_is_public, addresses)):
        raise Forbidden(f"{host}:{port} is not a public address; EVERYSLOT_HTTP_ALLOW names the internal ones allowed")
    return str(addresses[0])


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    plain = mapped or address
    denied = any(plain in network for network in _DENIED if network.version == plain.version)
    return plain.is_global and not plain.is_multicast and not denied


class _Judging(HTTPAdapter):
    """Connects to the judged address; name checks of TLS and the Host header keep the name."""

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: bool | str, cert: Any = None
    ) -> tuple[Any, Any]:
        attributes: tuple[Any, Any] = super().build_connection_pool_key_attributes(request, verify, cert)
        target, options = attributes
        scheme, host = str(target["scheme"]), str(target["host"])
        port = int(target["port"] or DEFAULT_PORTS[scheme])
        shown = f"[{host}]" if ":" in host else host
        request.headers["Host"] = shown if port == DEFAULT_PORTS[scheme] else f"{shown}:{port}"
        if scheme == "https":
            options["assert_hostname"] = options["server_hostname"] = host
        target["host"] = judge(host, port)
        return target, options


def _read(response: requests.Response) -> tuple[bytes, bool]:
    end = time.monotonic() + WHOLE_SECONDS
    content = bytearray()
    for piece in response.iter_content(16 * 1024):
        content += piece
        if len(content) > MAX_ANSWER:
            return bytes(content[:MAX_ANSWER]), False
        if time.monotonic() > end:
            raise AnswerTooSlow(f"the answer took longer than {WHOLE_SECONDS:.0f} s")
    return bytes(content), True
