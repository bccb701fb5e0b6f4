"""An object store for the tests: moto's S3 on a port of this machine, which keeps its objects in memory.

Requests are done one after the other, as if each were atomic, which a store promises for a single object.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Final, Self

import boto3
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET: Final = "bucket"
KEYS: Final = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "n0t-to-be-shown", "AWS_REGION": "us-east-1"}
"""The environment of a user of the bucket."""


class _Silent(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_: object) -> None:
        """Write no log, as nobody reads it."""


class S3Server:
    """A service with one bucket. As a context manager it runs, and its objects are gone afterwards."""

    def __init__(self) -> None:
        self._application = DomainDispatcherApplication(create_backend_app)
        self._one_by_one = Lock()
        self._server: Any = None
        self.port = 0

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self._one_by_one:
            return list(self._application(environ, start_response))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, **options: object) -> str:
        """Return the URL of a backend in the bucket."""
        given = {"url": f"s3://{BUCKET}/stores", "endpoint": self.endpoint, **options}
        return "slatedb://?" + "&".join(f"{name}={value}" for name, value in given.items())

    def client(self) -> Any:
        """Return a client of boto3 for the bucket."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=KEYS["AWS_REGION"],
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )

    def keys(self) -> Collection[str]:
        """Return the names of all objects."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return [found["Key"] for page in pages for found in page.get("Contents", ())]

    def delete(self, *keys: str) -> None:
        """Delete objects, as if they were lost."""
        client = self.client()
        for key in keys:
            client.delete_object(Bucket=BUCKET, Key=key)

    def start(self) -> None:
        self._server = make_server("127.0.0.1", self.port, self, threaded=True, request_handler=_Silent)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Stop the server within, and start it again with all that it had."""
        self.stop()
        yield
        self.start()

    def __enter__(self) -> Self:
        self.start()
        self.client().create_bucket(Bucket=BUCKET)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client = self.client()
        self.delete(*self.keys())
        client.delete_bucket(Bucket=BUCKET)
        self.stop()


@pytest.fixture(scope="session", autouse=True)
def keys() -> Iterator[None]:
    """The environment of a user of the bucket."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """A service that runs."""
    with S3Server() as server:
        yield server
