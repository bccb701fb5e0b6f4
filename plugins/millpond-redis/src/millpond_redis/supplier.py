"""The description of the backend that travels to workers: which server, and how long to wait for it."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import unquote, urlsplit

from millpond.errors import BackendError
from millpond.stores.backend import BackendSupplier
from millpond.stores.options import check_option, parse_options, without_secrets
from millpond_redis.backend import RedisBackend
from millpond_redis.place import Record, record_of
from millpond_redis.server import connected, translate_errors
from millpond_redis.store import keys_of

_log = logging.getLogger(__name__)

_FORM = "redis://[user:password@]host[:port][/database], the same with rediss://, or unix://[user:password@]/path"
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_HOST = re.compile(r"[\w.-]+")
_LONGEST_PATH = 107
"""Bytes of the path of a socket, which the system sets a limit to."""

_LONGEST = 24 * 60 * 60
_NUMBER = f"a number of seconds above 0, at most {_LONGEST}"


def _is_server(url: str) -> bool:
    """Whether ``url`` has the form that messages ask for; redis-py would take another one for the first database."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        port = parts.port if parts.scheme != "unix" else None
    except ValueError:  # no port, no address
        return False
    if parts.query or parts.fragment or port == 0 or not url.isprintable() or not url.startswith(f"{parts.scheme}://"):
        return False
    if parts.scheme == "unix":
        path = unquote(parts.path)
        return host is None and path != "" and "\0" not in path and len(path.encode()) <= _LONGEST_PATH
    database = parts.path.removeprefix("/")
    numbered = not database or (database.isascii() and database.isdigit())
    return parts.scheme in {"redis", "rediss"} and host is not None and _is_host(host) and numbered


def _is_host(host: str) -> bool:
    """Whether a host may have this name, or address, wherever it is looked up."""
    try:
        if ":" in host:
            ip_address(unquote(host))
            return True
        host.encode("idna")
    except ValueError:
        return False
    return _HOST.fullmatch(host) is not None


def _parse_seconds(text: str) -> float:
    if _SECONDS.fullmatch(text.strip()) is None:
        raise ValueError(_NUMBER)
    return float(text)


@dataclass(frozen=True)
class RedisSupplier(BackendSupplier):
    """Stores on the Redis server at ``url``, which has to answer each call within ``timeout`` seconds."""

    name: ClassVar[str] = "redis"

    url: str = field(default="redis://127.0.0.1:6379/0", repr=False)
    timeout: float = 30.0

    def __post_init__(self) -> None:
        check_option(self.name, "url", self.url, isinstance(self.url, str) and _is_server(self.url), _FORM)
        check_option(self.name, "timeout", self.timeout, type(self.timeout) in (int, float), _NUMBER)
        check_option(self.name, "timeout", self.timeout, 0 < self.timeout <= _LONGEST, _NUMBER)

    def __repr__(self) -> str:
        return f"RedisSupplier(url={without_secrets(self.url)!r}, timeout={self.timeout!r})"

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        return cls(**parse_options(cls.name, options, {"url": str, "timeout": _parse_seconds}))

    def open(self, directory: Path) -> RedisBackend:
        return RedisBackend(directory, self.url, self.timeout)

    def destroy(self, directory: Path) -> None:
        try:
            record = record_of(directory)
        except BackendError as error:
            _log.warning("what the store of %s has on a server stays there: %s", directory, error)
            return
        if record is None:
            return
        with translate_errors(directory, self.url), connected(self.url, self.timeout, record.database) as client:
            deleted = client.unlink(*keys_of(record.store))
        if not deleted and record.server != Record.new(self.url).server:
            _log.warning(
                "the store of %s was on another server, %s; what is left there is yours to delete: %s in database %d",
                directory,
                record.server,
                ", ".join(keys_of(record.store)),
                record.database,
            )
