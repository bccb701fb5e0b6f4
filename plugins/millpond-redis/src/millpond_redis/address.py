"""The address of a server, as a URL has it: taken apart once, so that nothing else reads URLs."""

import re
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final, Self
from urllib.parse import SplitResult, unquote, urlsplit

from millpond.masking import masked

FORM: Final = "redis://[user:password@]host[:port][/database], the same with rediss://, or unix://[user:password@]/path"
"""The form of a URL."""

_HOST: Final = re.compile(r"[\w.-]+")
_LONGEST_PATH: Final = 107
"""The most bytes of the path of a socket, by the system's limit."""

_PORT: Final = 6379


@dataclass(frozen=True)
class Address:
    """A database of a server, and the way to reach it.

    Attributes:
        url: the URL for redis-py.
        server: the server's host and port, or its socket, without users and passwords.
        database: the number of the database.
        certificate: the file of the certificate that a client shows, with its key, or None.
    """

    url: str = field(repr=False)
    server: str
    database: int
    certificate: str | None = None

    @classmethod
    def of(cls, url: Any) -> Self:
        """Return the address in ``url``.

        Raises:
            ValueError: it is not of the ``FORM`` that messages ask for; redis-py would take many another form for the
                first database of some server.
        """
        _require(isinstance(url, str))
        parts = urlsplit(url)
        _require(url.isprintable() and url.startswith(f"{parts.scheme}://") and not parts.query and not parts.fragment)
        if parts.scheme == "unix":
            return cls(url, _socket(parts), 0)
        _require(parts.scheme in {"redis", "rediss"} and parts.port != 0)
        return cls(url, f"{_host(parts)}:{parts.port or _PORT}", _database(parts))

    @property
    def shown(self) -> str:
        """The URL without user and password."""
        return masked(self.url)

    @property
    def has_tls(self) -> bool:
        """True if the server has to speak TLS."""
        return self.url.startswith("rediss://")

    @property
    def kind(self) -> str:
        """The kind of its connections, in words."""
        if self.has_tls:
            return f"with TLS from clients {'without a' if self.certificate is None else 'with this'} certificate"
        return "at a socket" if self.url.startswith("unix://") else "without TLS"


def _require(met: bool) -> None:
    if not met:
        raise ValueError(FORM)


def _socket(parts: SplitResult) -> str:
    path = unquote(parts.path)
    _require(parts.hostname is None and path != "" and "\0" not in path and len(path.encode()) <= _LONGEST_PATH)
    return path


def _host(parts: SplitResult) -> str:
    """Return a name, or an address, that a host may have wherever it is looked up."""
    host = parts.hostname or ""
    if ":" in host:
        ip_address(unquote(host))
    else:
        _require(_HOST.fullmatch(host) is not None)
        host.encode("idna")
    return host


def _database(parts: SplitResult) -> int:
    number = parts.path.removeprefix("/")
    _require(number == "" or (number.isascii() and number.isdigit()))
    return int(number or 0)
