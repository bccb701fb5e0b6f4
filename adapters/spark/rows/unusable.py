"""Records that cannot be processed: the policy for them, applied by whatever reads a split of an input.

Rule of this module: nothing is left out without being counted, and an error tells the row that caused it.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.adapters.spark.rows.event_times import EventTimes
from millpond.errors import RecordError
from millpond.processors.distribution.execution import Decoder, shown
from millpond.processors.options.on_error import OnError
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.failures import DeadLetter

SKIP_REASONS: Final = (
    CounterName.DROPPED_NULL_KEY,
    CounterName.DROPPED_BAD_KEY,
    CounterName.DROPPED_BAD_TIMESTAMP,
    CounterName.DROPPED_FUTURE_TIMESTAMP,
    CounterName.DROPPED_BAD_VALUE,
)
"""Why a record is unusable."""

Bury: TypeAlias = Callable[[DeadLetter], None]
"""Takes dead letters."""

REMEDY: Final = "clean the input, or leave such records out with on_error='skip' or 'dead-letter'"


class SplitReader(Protocol):
    """Reads the records of one split."""

    @property
    def skipped(self) -> Counter[str]:
        """How many records were left out so far, by reason."""

    def usable(self, table: pa.Table) -> pa.Table:
        """The usable records of the next rows."""

    def packed(self, table: pa.Table, *, partial: bool = False) -> tuple[pa.Table, Any]:
        """Usable records, or partial aggregates of them, as they travel, and an array of the bytes of their keys."""


class TopicSource(Protocol):
    """How the records of one source topic are read. Travels to the workers."""

    @property
    def topic(self) -> str:
        """The topic."""

    @property
    def decoder(self) -> Decoder:
        """How what travels becomes what processors see."""

    @property
    def usable_decoder(self) -> Decoder | None:
        """How usable rows are read before they travel; None if that cannot fail."""

    def reader(self, split: int, bury: Bury | None = None) -> SplitReader:
        """A reader for one split; ``bury`` takes the records that it leaves out, if they are to be kept."""


class Unusable:
    """The unusable records of one split.

    Args:
        topic: where the records come from.
        on_error: what happens to them.
        split: the split's number.
        bury: takes those that are left out; None if they are only counted.
        headers: the column with the records' headers, as pairs of key and value; None if they have none.

    Attributes:
        skipped: how many were left out so far, by reason.
        seen: how many rows came before those that are read now.
    """

    def __init__(
        self, topic: str, on_error: OnError, split: int, bury: Bury | None = None, headers: str | None = None
    ) -> None:
        self.skipped: Counter[str] = Counter()
        self._bury = bury
        self._headers = headers
        self.seen = 0
        self._topic = topic
        self._on_error = on_error
        self._split = split

    def drop(self, table: pa.Table, refused: list[int], reason: CounterName, column: str, detail: str = "") -> pa.Table:
        """The rows without those at the refused positions; ``detail`` goes into the message.

        Raises:
            RecordError: there are such rows, and the policy is to fail.
        """
        if not refused:
            return table
        names = table.column_names
        self.refuse(refused, reason, column, lambda row: {name: _entry(table[name], row) for name in names}, detail)
        mask = np.ones(table.num_rows, dtype=bool)
        mask[refused] = False
        return table.filter(pa.array(mask))

    def timed(self, table: pa.Table, column: str, event_times: EventTimes) -> pa.Table:
        """The rows whose timestamp is neither null, nor negative, nor too far ahead of the wall clock.

        Args:
            table: the rows.
            column: what the user calls the column ``timestamp``.
            event_times: says what is too far.

        Raises:
            RecordError: there are others, and the policy is to fail.
        """
        times: Any = table["timestamp"]
        untimed: Any = pc.fill_null(pc.less(times, pa.scalar(0)), True)
        table = self.drop(table, positions(untimed), CounterName.DROPPED_BAD_TIMESTAMP, column)
        now = event_times.now()
        latest = event_times.latest(now)
        times = table["timestamp"]
        if latest is None or not table.num_rows or pc.max(times).as_py() <= latest:
            return table
        ahead = positions(pc.greater(times, pa.scalar(latest)))
        detail = event_times.objection(times[ahead[0]].as_py(), now)
        return self.drop(table, ahead, CounterName.DROPPED_FUTURE_TIMESTAMP, column, detail)

    def refuse(
        self,
        refused: list[int],
        reason: CounterName,
        column: str,
        entries_of: Callable[[int], Mapping[str, Any]],
        detail: str = "",
    ) -> None:
        """Count the refused records, or fail with the first of them, of which ``entries_of`` gives the entries."""
        if not refused:
            return
        if self._on_error is not OnError.FAIL:
            self.skipped[reason.value] += len(refused)
            for row in refused if self._bury is not None else ():
                self._bury_row(row, reason, column, entries_of(row), detail)
            return
        entries = shown(entries_of(refused[0]))
        fault = self._fault(refused[0], reason, column)
        raise RecordError(f"topic {self._topic!r}: {fault} ({entries}){detail and f': {detail}'}; {REMEDY}")

    def _fault(self, row: int, reason: CounterName, column: str) -> str:
        fault = reason.removeprefix("dropped-").replace("-", " ")
        return f"column {column!r}: {fault} in row {self.seen + row} of Spark partition {self._split}"

    def _bury_row(self, row: int, reason: CounterName, column: str, entries: Mapping[str, Any], detail: str) -> None:
        """Keep an unusable row; what is neither its key, nor its time, nor its headers, is its value."""
        assert self._bury is not None
        apart = ("key", "timestamp", self._headers)
        rest = {name: entry for name, entry in entries.items() if name not in apart}
        pairs = None if self._headers is None else entries.get(self._headers)
        self._bury(
            DeadLetter(
                operator="",
                task_id=f"split-{self._split}",
                topics=(self._topic,),
                reason=reason.value,
                error=f"{self._fault(row, reason, column)}{detail and f': {detail}'}",
                key=entries.get("key"),
                value=rest["value"] if list(rest) == ["value"] else rest,
                timestamp=entries.get("timestamp"),
                headers=tuple((pair["key"], pair["value"]) for pair in pairs or ()),
            )
        )


def _entry(column: Any, row: int) -> Any:
    """An entry as a Python object, or as text if Python has none for it, such as a time after the year 9999."""
    try:
        return column[row].as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        return str(column.slice(row, 1))


def positions(mask: Any) -> list[int]:
    """Where the mask is true."""
    found: list[int] = pc.indices_nonzero(mask).to_pylist()
    return found
