"""The description of the backend that travels to workers: the bucket, and the time to wait for it."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Self

from slatedb.uniffi import AdminBuilder

from millpond.errors import BackendError, ConfigurationError
from millpond.stores.backend import BackendSupplier
from millpond.stores.backend.options import Parser, check_option, parse_options, parse_size
from millpond_slatedb.backend import SlateDbBackend
from millpond_slatedb.bucket import ENDPOINT_FORM, URL_FORM, Bucket, is_endpoint, is_url, translate_errors
from millpond_slatedb.calls import Calls
from millpond_slatedb.place import record_of

_log = logging.getLogger(__name__)

_SECONDS: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_LONGEST: Final = 24 * 60 * 60
_NUMBER: Final = f"a number of seconds above 0, at most {_LONGEST}"
_REGION: Final = re.compile(r"[a-z0-9-]+")
_LEAST_CACHE: Final = 2**20


def _parse_seconds(text: str) -> float:
    if _SECONDS.fullmatch(text.strip()) is None:
        raise ValueError(_NUMBER)
    return float(text)


@dataclass(frozen=True)
class SlateDbSupplier(BackendSupplier):
    """Stores below ``url``, a bucket and a prefix, which has to answer each call within ``timeout`` seconds.

    All stores of a process share a cache of ``block_cache`` bytes. The keys of the bucket come from the environment.
    """

    name: ClassVar[str] = "slatedb"

    url: str | None = None
    endpoint: str | None = None
    region: str | None = None
    timeout: float = 60.0
    block_cache: int = 64 * 2**20

    def __post_init__(self) -> None:
        check_option(self.name, "url", self.url, self.url is None or is_url(self.url), URL_FORM)
        known = self.endpoint is None or is_endpoint(self.endpoint)
        check_option(self.name, "endpoint", self.endpoint, known, ENDPOINT_FORM)
        known = self.region is None or (isinstance(self.region, str) and _REGION.fullmatch(self.region) is not None)
        check_option(self.name, "region", self.region, known, "a region such as eu-central-1")
        check_option(self.name, "timeout", self.timeout, type(self.timeout) in (int, float), _NUMBER)
        check_option(self.name, "timeout", self.timeout, 0 < self.timeout <= _LONGEST, _NUMBER)
        allowed = type(self.block_cache) is int and _LEAST_CACHE <= self.block_cache < 2**63
        check_option(self.name, "block_cache", self.block_cache, allowed, "a number of bytes, at least 1 MiB")

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        parsers: dict[str, Parser] = {
            "url": str,
            "endpoint": str,
            "region": str,
            "timeout": _parse_seconds,
            "block_cache": parse_size,
        }
        return cls(**parse_options(cls.name, options, parsers))

    def open(self, directory: Path) -> SlateDbBackend:
        return SlateDbBackend(directory, self._bucket(), self.timeout, self.block_cache)

    def destroy(self, directory: Path) -> None:
        try:
            record = record_of(directory)
        except BackendError as error:
            _log.warning("what the store of %s has in a bucket stays there: %s", directory, error)
            return
        if record is None:
            return
        bucket = self._bucket()
        path = bucket.path_of(record.store)
        if record.url != bucket.url:
            _log.warning("the store of %s stays in %s, for you to delete: %s", directory, record.url, record.store)
            return
        with translate_errors(directory, bucket, self.timeout):
            admin = AdminBuilder(path, bucket.object_store()).build()
            Calls(self.timeout).change(admin.delete_db(True))

    def _bucket(self) -> Bucket:
        if self.url is None:
            raise ConfigurationError(
                f"the backend {self.name!r} has no bucket; name one, as in 'slatedb://?url={URL_FORM.split()[-1]}'"
            )
        return Bucket(self.url, self.endpoint, self.region)
