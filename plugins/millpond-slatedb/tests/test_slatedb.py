"""The kit in a bucket."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest
from millpond_slatedb import SlateDbSupplier
from s3_server import BUCKET, S3Server

from millpond.stores.backend import BackendSupplier
from millpond.stores.testing import BackendSuite, Feature, StoreSuite

pytest_plugins = ("s3_server",)


class InABucket:
    """Tests in the bucket that the module has."""

    server: ClassVar[S3Server]
    timeout: ClassVar[float] = 60.0

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def in_a_bucket(cls, server: S3Server) -> None:
        cls.server = server

    def supplier(self) -> BackendSupplier:
        return SlateDbSupplier(f"s3://{BUCKET}/stores", self.server.endpoint, timeout=self.timeout)


class TestSlateDb(InABucket, BackendSuite):
    examples = 2
    kills = 1
    cuts = 1
    opt_outs: ClassVar = {
        Feature.FILES: "a directory has only the name of a store that is in a bucket",
        Feature.DEFAULTS: "there is no bucket that is everywhere",
    }

    def outside(self) -> Collection[object]:
        return self.server.keys()

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        with self.server.away(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(InABucket, "timeout", 1.0)  # an unreachable service does not answer later either
            yield


class TestStores(InABucket, StoreSuite):
    examples = 1
