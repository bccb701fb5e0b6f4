"""The page, served on this machine alone.

Rule of this module: it answers GET of three paths, to those who ask for this very host. So no other site can read it
through a browser, not even by a name that leads here (DNS rebinding), and no path leads to a file. The page loads
nothing from elsewhere, and its policy forbids it.
"""

import json
from base64 import b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Lock
from time import monotonic
from typing import Any, ClassVar, Final, NamedTuple

from millpond.adapters.monitor.exposition import CONTENT_TYPE, exposed
from millpond.adapters.monitor.overview import Overview
from millpond.adapters.monitor.query_monitor import QueryMonitor
from millpond.errors import InvalidArgumentError, MillpondError
from millpond.masking import masked_errors

HOST: Final = "127.0.0.1"
DATA: Final = "/data.json"
METRICS: Final = "/metrics"
_TIMEOUT: Final = 10


class Answer(NamedTuple):
    """An answer: its status, the type of its content, and the content."""

    status: HTTPStatus
    type: str
    content: bytes


@dataclass
class Source:
    """An overview that all requests share, no older than the interval.

    Attributes:
        watched: the query.
        interval: in seconds.
    """

    watched: QueryMonitor
    interval: float
    _seen: Overview | MillpondError = field(init=False)

    def __post_init__(self) -> None:
        self._lock, self._at = Lock(), float("-inf")

    def data(self) -> Answer:
        """Return the overview as JSON, or what is wrong, as ``{"error": "..."}``."""
        seen = self._look()
        if isinstance(seen, MillpondError):
            return _unavailable("application/json", json.dumps({"error": str(seen), "code": seen.code}))
        return Answer(HTTPStatus.OK, "application/json", json.dumps(seen.to_dict()).encode())

    def metrics(self) -> Answer:
        """Return the overview as Prometheus reads it, or what is wrong."""
        seen = self._look()
        if isinstance(seen, MillpondError):
            return _unavailable("text/plain; charset=utf-8", f"{seen}\n")
        return Answer(HTTPStatus.OK, CONTENT_TYPE, exposed(seen).encode())

    def _look(self) -> Overview | MillpondError:
        with self._lock:
            if monotonic() - self._at >= self.interval:
                try:
                    with masked_errors():  # the server prints what nobody has expected
                        self._seen = self.watched.look()
                except MillpondError as error:
                    self._seen = error
                self._at = monotonic()
            return self._seen


class Page(NamedTuple):
    """The page, and the policy that lets a browser run its own script and style and nothing else."""

    content: bytes
    policy: str

    @classmethod
    def made(cls, interval: float) -> "Page":
        """Return the page, which asks for data again after ``interval`` seconds."""
        parts = files(__package__) / "page"
        html, style, script = ((parts / f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
        content = html.replace("/*style*/", style).replace("/*script*/", script)
        content = content.replace('data-interval=""', f'data-interval="{round(interval * 1000)}"')
        policy = (
            "default-src 'none'; connect-src 'self'; img-src data:; "
            f"style-src {_hash(style)}; script-src {_hash(script)}; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return cls(content.encode(), policy)


def server(watched: QueryMonitor, port: int, interval: float) -> ThreadingHTTPServer:
    """Return the server, which has its port and serves once ``serve_forever`` is called.

    Args:
        watched: the query.
        port: the port; 0 for a free one, which ``server_port`` tells.
        interval: after how many seconds there is new data.

    Raises:
        ConfigurationError: the port cannot be opened.
    """
    found, made = Source(watched, interval), Page.made(interval)

    class Handler(_Handler):
        source, page = found, made

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except (OSError, OverflowError) as error:
        raise InvalidArgumentError(f"port {port} of {HOST} cannot be opened: {error}; give another, or 0") from error


class _Handler(BaseHTTPRequestHandler):
    source: ClassVar[Source]
    page: ClassVar[Page]
    timeout = _TIMEOUT
    server_version, sys_version = "millpond", ""

    def do_GET(self) -> None:
        if self.headers.get_all("Host") not in [[host] for host in self._hosts()]:
            self._refuse(HTTPStatus.FORBIDDEN, f"ask for http://{HOST}:{self._port}/")
        elif self.path == "/":
            self._send(Answer(HTTPStatus.OK, "text/html; charset=utf-8", self.page.content))
        elif self.path == DATA:
            self._send(self.source.data())
        elif self.path == METRICS:
            self._send(self.source.metrics())
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")

    def _only_get(self) -> None:
        self.close_connection = True  # what follows is the body that nobody reads
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_HEAD = _only_get

    @property
    def _port(self) -> int:
        return int(self.connection.getsockname()[1])

    def _hosts(self) -> list[str]:
        names = (HOST, "localhost")
        return [f"{name}:{self._port}" for name in names] + (list(names) if self._port == 80 else [])

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(Answer(status, "text/plain; charset=utf-8", f"{why}\n".encode()))

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        for name, value in (
            ("Content-Type", answer.type),
            ("Content-Length", str(len(answer.content))),
            ("Cache-Control", "no-store"),
            ("Content-Security-Policy", self.page.policy),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal is the user's."""


def _unavailable(type_: str, text: str) -> Answer:
    return Answer(HTTPStatus.SERVICE_UNAVAILABLE, type_, text.encode())


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
