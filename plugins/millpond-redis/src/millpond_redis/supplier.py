"""The description of the backend that travels to workers: the server, and the time to wait for it."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

from millpond.errors import BackendError
from millpond.stores.backend import BackendSupplier
from millpond.stores.backend.options import check_option, parse_options
from millpond_redis.address import FORM, Address
from millpond_redis.backend import RedisBackend
from millpond_redis.place import record_of
from millpond_redis.server import connected, translate_errors
from millpond_redis.store import keys_of

_log = logging.getLogger(__name__)

_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_LONGEST = 24 * 60 * 60
_NUMBER = f"a number of seconds above 0, at most {_LONGEST}"
_NO_CERTIFICATE = "none"
_CERTIFICATE = (
    f"{_NO_CERTIFICATE}, or the path of a file with a certificate and its key if the server has TLS (rediss://)"
)


def _parse_seconds(text: str) -> float:
    if _SECONDS.fullmatch(text.strip()) is None:
        raise ValueError(_NUMBER)
    return float(text)


def _is_address(url: object) -> bool:
    try:
        Address.of(url)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class RedisSupplier(BackendSupplier):
    """Stores on the Redis server at ``url``, which has to answer each call within ``timeout`` seconds.

    A server that wants certificates of its clients gets the one in the file ``certificate``, which has its key, too.
    """

    name: ClassVar[str] = "redis"

    url: str = field(default="redis://127.0.0.1:6379/0", repr=False)
    timeout: float = 30.0
    certificate: str = _NO_CERTIFICATE

    def __post_init__(self) -> None:
        check_option(self.name, "url", self.url, _is_address(self.url), FORM)
        check_option(self.name, "timeout", self.timeout, type(self.timeout) in (int, float), _NUMBER)
        check_option(self.name, "timeout", self.timeout, 0 < self.timeout <= _LONGEST, _NUMBER)
        is_path = isinstance(self.certificate, str) and self.certificate != ""
        check_option(self.name, "certificate", self.certificate, is_path, _CERTIFICATE)
        is_shown = self.certificate == _NO_CERTIFICATE or self._address.has_tls
        check_option(self.name, "certificate", self.certificate, is_shown, _CERTIFICATE)

    def __repr__(self) -> str:
        rest = f"timeout={self.timeout!r}, certificate={self.certificate!r}"
        return f"RedisSupplier(url={self._address.shown!r}, {rest})"

    @property
    def _address(self) -> Address:
        certificate = None if self.certificate == _NO_CERTIFICATE else self.certificate
        return replace(Address.of(self.url), certificate=certificate)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        return cls(**parse_options(cls.name, options, {"url": str, "timeout": _parse_seconds, "certificate": str}))

    def open(self, directory: Path) -> RedisBackend:
        return RedisBackend(directory, self._address, self.timeout)

    def destroy(self, directory: Path) -> None:
        try:
            record = record_of(directory)
        except BackendError as error:
            _log.warning("what the store of %s has on a server stays there: %s", directory, error)
            return
        if record is None:
            return
        address = self._address
        with translate_errors(directory, address), connected(address, self.timeout, record.database) as client:
            deleted = client.unlink(*keys_of(record.store))
        if not deleted and record.server != address.server:
            _log.warning(
                "the store of %s was on another server, %s; what is left there is yours to delete: %s in database %d",
                directory,
                record.server,
                ", ".join(keys_of(record.store)),
                record.database,
            )
