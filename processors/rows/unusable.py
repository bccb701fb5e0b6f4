"""Records that cannot be processed: the policy for them, applied by whatever reads a split of an input.

Rule of this module: nothing is left out without being counted, and an error tells the row that caused it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import MAXYEAR
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import RecordError
from millpond.processors.distribution.execution import Decoder, shown
from millpond.processors.options.on_error import OnError
from millpond.processors.rows.event_times import EventTimes
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.failures import DeadLetter
from millpond.processors.verbs.change_feed import KNOWN, Change, changes_of
from millpond.stores.encoding.times import TimeUnit

SKIP_REASONS: Final = (
    CounterName.DROPPED_NULL_KEY,
    CounterName.DROPPED_BAD_KEY,
    CounterName.DROPPED_BAD_TIMESTAMP,
    CounterName.DROPPED_FUTURE_TIMESTAMP,
    CounterName.DROPPED_BAD_VALUE,
    CounterName.DROPPED_NEVER_VALID,
    CounterName.DROPPED_NO_GAP,
)
"""Why a record is left out of a source."""

KeepLetter: TypeAlias = Callable[[DeadLetter], None]
"""Takes dead letters."""

REMEDY: Final = "clean the input, or leave such records out with on_error='skip' or 'dead-letter'"


class SplitReader(Protocol):
    """Reads the records of one split."""

    @property
    def skipped(self) -> Counter[str]:
        """The number of records left out so far, by reason."""

    def usable(self, table: pa.Table) -> pa.Table:
        """Return the usable records of the next rows."""

    def spread(self, table: pa.Table) -> Iterator[pa.Table]:
        """Yield usable records as often as they have keys: all of some of them for one key, then for the next."""

    def packed(self, table: pa.Table, *, partial: bool = False) -> tuple[pa.Table, Any]:
        """Return usable records, or their partial aggregates, as they travel, and an array of their keys' bytes."""


class TopicSource(Protocol):
    """The reader of one source topic's records. Travels to the workers."""

    @property
    def topic(self) -> str:
        """The topic."""

    @property
    def decoder(self) -> Decoder:
        """The decoder of records that have traveled, for processors."""

    @property
    def usable_decoder(self) -> Decoder | None:
        """The decoder of usable rows before they travel; None if that cannot fail."""

    @property
    def copies(self) -> int:
        """The number of keys of each record."""

    def reader(self, split: int, keep_letter: KeepLetter | None = None) -> SplitReader:
        """Return a reader for one split; ``keep_letter`` takes the records that it leaves out, if they are kept."""


class Fault(NamedTuple):
    """The words of messages about an unusable record.

    Attributes:
        what: the words for what is found in the column.
        detail: more of it; empty for nothing.
    """

    what: str
    detail: str = ""

    @property
    def behind(self) -> str:
        """The detail as the end of a message."""
        return self.detail and f": {self.detail}"


FaultOf: TypeAlias = Callable[[int], Fault]
"""Gives what messages say of an unusable record, by its position."""

_NULL: Final = Fault("null")


class Unusable:
    """The unusable records of one split.

    Args:
        topic: the topic of the records.
        on_error: what happens to them.
        split: the split's number.
        keep_letter: takes records that are left out; None if they are only counted.
        headers: the column with the records' headers, as pairs of key and value; None if they have none.
        numbered: whether messages tell the split, because a row is counted within it.
        whose: the name of the input in messages; by default that of a topic.

    Attributes:
        skipped: how many were left out so far, by reason.
        seen: how many rows came before those that are read now.
    """

    def __init__(
        self,
        topic: str,
        on_error: OnError,
        split: int,
        keep_letter: KeepLetter | None = None,
        headers: str | None = None,
        *,
        numbered: bool = True,
        whose: str | None = None,
    ) -> None:
        self.skipped: Counter[str] = Counter()
        self._keep_letter = keep_letter
        self._headers = headers
        self.seen = 0
        self._topic = topic
        self._whose = whose or f"topic {topic!r}"
        self._on_error = on_error
        self._split = split
        self._within = f" of Spark partition {split}" if numbered else ""

    def drop(
        self, table: pa.Table, refused: list[int], reason: CounterName, column: str, fault_of: FaultOf | None = None
    ) -> pa.Table:
        """Return the rows without those at the refused positions.

        Raises:
            RecordError: there are such rows, and the policy is to fail.
        """
        if not refused:
            return table
        self.refuse(refused, reason, column, _entries(table), fault_of)
        return table.filter(_others(table, refused))

    def timed(self, table: pa.Table, column: str, event_times: EventTimes, *, untimed: bool = False) -> pa.Table:
        """Return the rows whose timestamp is not null, not too early or too late, nor too far ahead of the wall clock.

        Args:
            table: the rows.
            column: the user's name of the column ``timestamp``.
            event_times: judges what is too early, too late or too far ahead.
            untimed: whether rows without a timestamp are kept. Other rows that would be left out and only counted
                are then kept without their timestamps.

        Raises:
            RecordError: there are other rows, and the policy is to fail.
        """
        times: Any = table["timestamp"]
        if not untimed:
            table = self._without(table, positions(times.is_null()), CounterName.DROPPED_BAD_TIMESTAMP, column, _NULL)
            times = table["timestamp"]
        early = positions(pc.less(times, pa.scalar(event_times.earliest)))
        fault = Fault(f"a time before the year {event_times.first_year}")
        table = self._without(table, early, CounterName.DROPPED_BAD_TIMESTAMP, column, fault, untimed=untimed)
        newest = pc.max(table["timestamp"]).as_py()
        if newest is not None and newest > event_times.last:
            late = positions(pc.greater(table["timestamp"], pa.scalar(event_times.last)))
            fault = Fault(f"a time after the year {MAXYEAR}")
            table = self._without(table, late, CounterName.DROPPED_BAD_TIMESTAMP, column, fault, untimed=untimed)
            newest = pc.max(table["timestamp"]).as_py()
        if newest is None or event_times.max_ahead is None:
            return table
        now, times = event_times.now(), table["timestamp"]
        latest = event_times.latest(now)
        if newest <= latest:
            return table
        ahead = positions(pc.greater(times, pa.scalar(latest)))
        fault = Fault("a time ahead of the clock", event_times.objection(times[ahead[0]].as_py(), now))
        return self._without(table, ahead, CounterName.DROPPED_FUTURE_TIMESTAMP, column, fault, untimed=untimed)

    def up_to(self, table: pa.Table, column: str, most: int) -> pa.Table:
        """Return the rows in which a column of ``value``, a length of time in microseconds, is short enough.

        Raises:
            RecordError: there are other rows, and the policy is to fail.
        """
        lengths: Any = pc.struct_field(table["value"], column)
        longer = positions(pc.greater(lengths, pa.scalar(most)))
        fault = Fault(f"more than at_most={TimeUnit.MICROSECOND.length(most)!r}")
        return self._without(table, longer, CounterName.DROPPED_BAD_VALUE, column, fault)

    def with_gap(self, table: pa.Table, column: str) -> pa.Table:
        """Return the rows in which a column of ``value``, the gap of a session, is above zero, and count the others."""
        lengths: Any = pc.struct_field(table["value"], column)
        without = positions(pc.fill_null(pc.less_equal(lengths, pa.scalar(0)), True))
        if not without:
            return table
        self.skipped[CounterName.DROPPED_NO_GAP.value] += len(without)
        return table.filter(_others(table, without))

    def ever_valid(self, table: pa.Table, event_times: EventTimes) -> pa.Table:
        """Return the rows that are valid some day; the others are counted, as nothing is wrong with them."""
        never = positions(pc.greater_equal(table["timestamp"], pa.scalar(event_times.never)))
        if not never:
            return table
        self.skipped[CounterName.DROPPED_NEVER_VALID.value] += len(never)
        return table.filter(_others(table, never))

    def changing(self, table: pa.Table, column: str) -> tuple[pa.Table, Sequence[Change] | None]:
        """Return the rows except those with the value before an update, and their operations.

        Args:
            table: rows, with the column ``op`` if they are a change feed; else all stay, and there are no operations.
            column: the user's name of the column.

        Raises:
            RecordError: an operation is null or unknown, and the policy is to fail.
        """
        if "op" not in table.column_names:
            return table, None
        operations, found = table["op"], changes_of(table["op"])
        unknown = [row for row, change in enumerate(found) if change is None]
        table = self.drop(
            table, unknown, CounterName.DROPPED_BAD_VALUE, column, lambda row: _unknown(operations[row].as_py())
        )
        changes = [change for change in found if change is not None]
        if Change.BEFORE not in changes:
            return table, changes
        mask: Any = pa.array([change is not Change.BEFORE for change in changes])
        return table.filter(mask), [change for change in changes if change is not Change.BEFORE]

    def _without(
        self,
        table: pa.Table,
        refused: list[int],
        reason: CounterName,
        column: str,
        fault: Fault,
        *,
        untimed: bool = False,
    ) -> pa.Table:
        """Return the rows without those at the refused positions; ``untimed`` is as in ``timed``."""
        if not refused:
            return table
        self.refuse(refused, reason, column, _entries(table), lambda row: fault)
        others = _others(table, refused)
        if not untimed or self._keep_letter is not None:
            return table.filter(others)
        times: Any = pc.if_else(others, table["timestamp"], pa.scalar(None, pa.int64()))
        return table.set_column(table.column_names.index("timestamp"), "timestamp", times)

    def refuse(
        self,
        refused: list[int],
        reason: CounterName,
        column: str,
        entries_of: Callable[[int], Mapping[str, Any]],
        fault_of: FaultOf | None = None,
    ) -> None:
        """Count the refused records, or fail with the first of them; ``entries_of`` returns a record's entries.

        ``fault_of`` returns the words about a record; by default they are the reason for which it is counted.
        """
        if not refused:
            return
        plain = Fault(reason.removeprefix("dropped-").replace("-", " "))
        if self._on_error is not OnError.FAIL:
            self.skipped[reason.value] += len(refused)
            for row in refused if self._keep_letter is not None else ():
                self._keep_row(row, reason, column, entries_of(row), plain if fault_of is None else fault_of(row))
            return
        fault = plain if fault_of is None else fault_of(refused[0])
        entries = shown(entries_of(refused[0]))
        where = self._where(refused[0], column, fault)
        raise RecordError(f"{self._whose}: {where} ({entries}){fault.behind}; {REMEDY}")

    def _where(self, row: int, column: str, fault: Fault) -> str:
        return f"column {column!r}: {fault.what} in row {self.seen + row}{self._within}"

    def _keep_row(self, row: int, reason: CounterName, column: str, entries: Mapping[str, Any], fault: Fault) -> None:
        """Keep an unusable row; its value is all that is not its key, its time or its headers."""
        assert self._keep_letter is not None
        apart = ("key", "timestamp", self._headers)
        rest = {name: entry for name, entry in entries.items() if name not in apart}
        pairs = None if self._headers is None else entries.get(self._headers)
        self._keep_letter(
            DeadLetter(
                operator="",
                task_id=f"split-{self._split}",
                topics=(self._topic,),
                reason=reason.value,
                error=f"{self._where(row, column, fault)}{fault.behind}",
                key=entries.get("key"),
                value=rest["value"] if list(rest) == ["value"] else rest,
                timestamp=entries.get("timestamp"),
                headers=tuple((pair["key"], pair["value"]) for pair in pairs or ()),
            )
        )


def _entries(table: pa.Table) -> Callable[[int], Mapping[str, Any]]:
    """Return a function from a row's number to its entries."""
    return lambda row: {name: _entry(table[name], row) for name in table.column_names}


def _others(table: pa.Table, refused: list[int]) -> Any:
    """Return an array that is true for the rows which are not at the refused positions."""
    mask = np.ones(table.num_rows, dtype=bool)
    mask[refused] = False
    return pa.array(mask)


def _entry(column: Any, row: int) -> Any:
    """Return an entry as a Python object; as text where Python has none for it, such as a time after the year 9999."""
    try:
        return column[row].as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        one = column.slice(row, 1)
    if pa.types.is_struct(one.type):
        return {field.name: _entry(pc.struct_field(one, number), 0) for number, field in enumerate(one.type)}
    return one.cast(pa.string())[0].as_py() if pa.types.is_timestamp(one.type) else str(one)


def positions(mask: Any) -> list[int]:
    """Return the positions at which the mask is true, and not null."""
    # Of no rows at all, some releases of Arrow make no chunk, and then end the process here.
    found: list[int] = pc.indices_nonzero(mask).to_pylist() if len(mask) else []
    return found


def _unknown(operation: str | None) -> Fault:
    """Return the words of messages for a row with no operation or an unknown one."""
    what = "no operation" if operation is None else f"the unknown operation {operation!r}"
    return Fault(what, f"known are {KNOWN}")
