"""An object store on loopback: moto's S3 in this process, behind a door that counts requests and lets some fail.

What it holds is in memory. All requests that come through the door are done one after the other, as if each were
atomic, which a store promises for a single object.
"""

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from threading import Lock, Thread
from typing import Any, Final, NamedTuple

import pytest

from millpond.stores.durability import Storage

BUCKET: Final = "bucket"
SECRET: Final = "n0t/to/be+shown"
_USER: Final = f"testing:{SECRET.replace('/', '%2F')}"


class Fault(StrEnum):
    """The fate of a request."""

    ERROR = "500 Internal Server Error"
    BUSY = "503 Slow Down"
    LATE = "it is done, and answered once nobody waits any more"
    LOST = "it is done, and the connection ends without an answer"


class Request(NamedTuple):
    """A request that arrived: its kind is the method, or LIST."""

    kind: str
    path: str


class ObjectStore:
    """The door: a WSGI application before another.

    Attributes:
        requests: all since they were last taken away.
        before: called with each request before it is done.
    """

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self.requests: list[Request] = []
        self.before: Callable[[Request], None] = lambda request: None
        self.port = 0
        self._application = application
        self._lock = Lock()
        self._one_by_one = Lock()
        self._left = 0
        self._faults: list[Fault] = []

    def uri(self, prefix: str, **options: object) -> str:
        """Return the address of a prefix of the bucket, for clients that send each request once and wait a second."""
        given = {
            "scheme": "http",
            "endpoint_override": f"127.0.0.1:{self.port}",
            "region": "us-east-1",
            "max_attempts": 1,
            "connect_timeout": 5,
            "request_timeout": 1,
            **options,
        }
        return f"s3://{_USER}@{BUCKET}/{prefix}?" + "&".join(f"{name}={value}" for name, value in given.items())

    def storage(self, prefix: str, **options: object) -> Storage:
        return Storage.from_uri(self.uri(prefix, **options))

    def fail(self, number: int, *faults: Fault) -> None:
        """Let the ``number``-th request from now on fail, and as many after it as there are more faults."""
        with self._lock:
            self._left, self._faults = number, list(faults)

    def met(self) -> bool:
        """Return whether all faults have happened; none will happen any more."""
        with self._lock:
            left, self._faults = self._faults, []
        return not left

    def taken(self) -> Counter[str]:
        """Return how many requests of each kind there were since the last call."""
        with self._lock:
            taken, self.requests = self.requests, []
        return Counter(request.kind for request in taken)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        listed = environ["REQUEST_METHOD"] == "GET" and "list-type=" in environ["QUERY_STRING"]
        request = Request("LIST" if listed else environ["REQUEST_METHOD"], environ["PATH_INFO"])
        fault = self._met(request)
        if fault in (Fault.ERROR, Fault.BUSY):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response(str(fault), [("Content-Length", "0")])
            return [b""]
        self.before(request)
        with self._one_by_one:
            answer = list(self._application(environ, start_response))
        if fault is Fault.LATE:
            time.sleep(2)
        if fault is Fault.LOST:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return answer

    def _met(self, request: Request) -> Fault | None:
        with self._lock:
            self.requests.append(request)
            self._left -= 1
            return self._faults.pop(0) if self._left < 1 and self._faults else None


@contextmanager
def serving() -> Iterator[ObjectStore]:
    """A store with an empty bucket; the test is skipped where moto is not installed."""
    app = pytest.importorskip("moto.moto_server.werkzeug_app")
    serving: Any = pytest.importorskip("werkzeug.serving")
    handler = type("Silent", (serving.WSGIRequestHandler,), {"log": lambda *_: None, "protocol_version": "HTTP/1.1"})
    store = ObjectStore(app.DomainDispatcherApplication(app.create_backend_app))
    server = serving.make_server("127.0.0.1", 0, store, threaded=True, request_handler=handler)
    store.port = server.server_port
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        _make_bucket(store.port)
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _make_bucket(port: int) -> None:
    boto3: Any = pytest.importorskip("boto3")
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key=SECRET,
    )
    client.create_bucket(Bucket=BUCKET)
