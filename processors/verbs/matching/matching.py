"""``Matching``: the rules of a join, explained for single rows.

Rule of this module: it is the common part of all joins. Times are microseconds, as verbs have them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from millpond.processors.verbs.matching.explanation import Candidate, MatchExplanation
from millpond.processors.verbs.matching.retained import Retained, Stored
from millpond.stores.encoding.rows.packing import RowCodec

MICROSECOND = timedelta(microseconds=1)


def side_called(role: str) -> str:
    """Return the name of a join's side in messages: one of two, or one of several tables by its name."""
    return f"the {role} side" if role in ("left", "right") else f"the table {role!r}"


class PackedSide(NamedTuple):
    """The part of a row that comes from one input of its join.

    Attributes:
        key: the packed key.
        columns: the columns of the input's rows, in the types in which they are packed; null where it has none.
        time: its time, in microseconds; None if it has none.
    """

    key: bytes
    columns: pa.Table
    time: int | None


@dataclass(frozen=True)
class Asked:
    """The row that a user asks about.

    Attributes:
        verb: the join's name.
        row: the row, as it was given.
        sides: by role, its part of each input whose columns it has; always of the left one.
    """

    verb: str
    row: Mapping[str, Any]
    sides: Mapping[str, PackedSide]


class Matching(ABC):
    """The rules by which a join decides who matches whom. Only joins have them.

    Attributes:
        timed: whether the time of a row decides, so that a row has to have it.
    """

    timed: ClassVar[bool] = True

    @property
    @abstractmethod
    def needs(self) -> Sequence[str]:
        """The columns of the left side, besides key and time, that decide about matches."""

    @abstractmethod
    def explain(self, asked: Asked, retained: Retained) -> MatchExplanation:
        """Explain why a row has the match that it has, by what is retained."""


@dataclass(frozen=True)
class Telling:
    """Makes candidates of stored rows of one side.

    Attributes:
        side: the side of the rows.
        codec: reads the rows.
        columns: the columns that are shown.
        times: the type of times, as results show them.
        time: the time of the explained row; None if it has none.
        unpacked: makes rows of the store's values.
    """

    side: str
    codec: RowCodec
    columns: Sequence[str]
    times: pa.DataType
    time: int | None
    unpacked: Callable[[bytes], bytes] = bytes

    def row(self, value: bytes) -> dict[str, Any]:
        """Return the columns of a stored row."""
        (found,) = self.codec.unpack([self.unpacked(value)]).select(list(self.columns)).to_pylist()
        return dict(found)

    def stored(self, one: Stored, why: str, *, won: bool = False) -> Candidate:
        """Return a stored row."""
        until = None if one.until is None else instant(one.until, self.times)
        return self._candidate(self.row(one.value), one.time, until, why, won=won)

    def delete(self, time: int, why: str) -> Candidate:
        """Return a candidate that says that a key had nothing from a time on."""
        return self._candidate(None, time, None, why, won=False)

    def _candidate(
        self, row: Mapping[str, Any] | None, time: int, until: datetime | None, why: str, *, won: bool
    ) -> Candidate:
        older_by = None if self.time is None else (self.time - time) * MICROSECOND
        return Candidate(self.side, row, instant(time, self.times), until, older_by, won, why)


def instant(time: int, type_: pa.DataType) -> datetime:
    """Return microseconds as a time of a type of ``Verb``."""
    found: datetime = pa.scalar(time, pa.int64()).cast(type_).as_py()
    return found


def length(micros: int) -> str:
    """Return a length of time, for sentences."""
    return str(micros * MICROSECOND)


def deletes_among(rows: Sequence[Stored]) -> list[int]:
    """Return the times from which a key had no version: ends of versions that no other one follows at once."""
    starts = {one.time for one in rows}
    return [one.until for one in rows if one.until is not None and one.until not in starts]


def differing(row: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the columns that two rows have with other values; NaN equals NaN."""
    return [name for name, value in row.items() if name in other and not _same(value, other[name])]


def forgotten(since: int | None, reached: int, times: pa.DataType) -> Iterable[str]:
    """Yield the note that rows may be gone which counted, if they were older than what the state still has."""
    if since is not None and reached < since:
        yield f"the state reaches back to {instant(since, times)}: what was valid only before that may be forgotten"


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) or repr(one) == repr(other)
