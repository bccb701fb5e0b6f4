"""A socket in place of a broker, where a test needs no more than that."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def listening(port: int = 0) -> Iterator[str]:
    """The address of a socket that accepts connections, as a broker does."""
    with socket.create_server(("127.0.0.1", port)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"
