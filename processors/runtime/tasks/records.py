"""``Record``: an output record, as the in-process driver gives it."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from millpond.processors.runtime.batches.headers import NO_HEADERS, Headers, as_headers


class _KeyValueTime(NamedTuple):
    key: Any
    value: Any
    timestamp: int


class Record(_KeyValueTime):
    """An output record: a tuple of key, value and timestamp (int milliseconds), which also has headers.

    Attributes:
        headers: a tuple of pairs of a name and bytes or None, in order. Records are equal if their headers are, too,
            and a plain tuple has none.

    >>> record = Record("mill", 1, 7, headers=[("trace", b"x")])
    >>> key, value, timestamp = record
    >>> record.headers, record == ("mill", 1, 7), Record("mill", 1, 7) == ("mill", 1, 7)
    ((('trace', b'x'),), False, True)
    >>> record._replace(value=2)
    Record(key='mill', value=2, timestamp=7, headers=(('trace', b'x'),))
    """

    headers: Headers = NO_HEADERS

    def __new__(
        cls, key: Any, value: Any, timestamp: int, headers: Iterable[tuple[str, bytes | None]] = NO_HEADERS
    ) -> Self:
        record = super().__new__(cls, key, value, timestamp)
        if headers:
            record.headers = as_headers(headers)
        return record

    def _replace(self, **changes: Any) -> Self:
        """Return the record with other parts, headers among them."""
        headers = changes.pop("headers", self.headers)
        key, value, timestamp = super()._replace(**changes)
        return type(self)(key, value, timestamp, headers)

    __replace__ = _replace

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, other) is True and self.headers == getattr(other, "headers", NO_HEADERS)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return tuple.__hash__(self)

    def __repr__(self) -> str:
        shown = f", headers={self.headers!r}" if self.headers else ""
        return f"Record(key={self.key!r}, value={self.value!r}, timestamp={self.timestamp!r}{shown})"
