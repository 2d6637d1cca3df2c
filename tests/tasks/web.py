"""A loopback web server that answers as told and keeps what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Asked:
    method: str
    path: str
    headers: Message
    body: bytes


@dataclass
class Reply:
    status: int = 200
    body: bytes = b"fine"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Web:
    """`reply` decides what a request gets."""

    port: int
    requests: list[Asked] = field(default_factory=list)
    reply: Callable[[Asked], Reply] = lambda _: Reply()

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@contextmanager
def serving() -> Iterator[Web]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = Asked(self.command, self.path, self.headers, body)
            web.requests.append(asked)
            reply = web.reply(asked)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        web = Web(server.server_address[1])
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield web
        finally:
            server.shutdown()
            thread.join()
