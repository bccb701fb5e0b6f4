"""The kit on a real server."""

from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

import pytest
from millpond_redis import RedisSupplier
from redis_servers import MANY, RedisServer

from millpond.stores.backend import BackendSupplier
from millpond.stores.testing import BackendSuite, Feature, StoreSuite


class OnAServer:
    """Tests on the server that the module has."""

    server: ClassVar[RedisServer]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def on_a_server(cls, server: RedisServer) -> None:
        cls.server = server

    def supplier(self) -> BackendSupplier:
        return RedisSupplier(self.server.url)


class TestRedis(OnAServer, BackendSuite):
    examples = 15
    opt_outs: ClassVar = {
        Feature.FILES: "a directory has only the name of a store that is on a server",
        Feature.DEFAULTS: "a server at the standard port is not everywhere",
    }

    def outside(self) -> Collection[object]:
        return self.server.keys()

    def unreachable(self) -> AbstractContextManager[object]:
        return self.server.away()


class TestStores(OnAServer, StoreSuite):
    examples = 5


def test_the_count_is_that_of_the_server(server: RedisServer, tmp_path: Path) -> None:
    redis = RedisSupplier(server.url)
    with redis.open(tmp_path / "store") as backend:
        backend.write({b"%d" % number: bytes(100) for number in range(MANY)})
        assert backend.entry_count() == MANY
    redis.destroy(tmp_path / "store")
