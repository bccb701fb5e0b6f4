"""Servers for the tests, which keep nothing on the disk."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from redis_servers import RedisServer


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with TemporaryDirectory(prefix="redis-") as place, RedisServer(Path(place)) as server:
        yield server


@pytest.fixture
def fresh() -> Iterator[Path]:
    """A directory with a short path for a server of one test."""
    with TemporaryDirectory(prefix="redis-") as fresh:
        yield Path(fresh)
