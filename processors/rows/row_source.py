"""The rows of a verb's input on their way to tasks: columns that Spark evaluates, then packed keys and values.

Rule of this module: it applies the policy for unusable rows; how a row is packed is the verb's business.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.distribution.exchange import PLACE, TURN
from millpond.processors.distribution.execution import Decoder
from millpond.processors.options.on_error import OnError
from millpond.processors.rows.event_times import EventTimes
from millpond.processors.rows.unusable import REMEDY, KeepLetter, Unusable
from millpond.processors.runtime.counters import CounterName
from millpond.processors.verbs.change_feed import changes_of
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.verb import Input, flattened
from millpond.stores.encoding.rows.tuple_keys import null_rows
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import NO_TIME

pc: Any = _compute


@dataclass(frozen=True)
class RowSource:
    """The reader of one input's rows. Travels to the workers.

    Attributes:
        verb: the verb's name.
        input: makes records of rows.
        key, time, op: the names of the columns in messages.
        event_times: judges which times are usable.
        value_serde: reads packed values; None if processors take them as bytes.
        on_error: what happens to unusable rows.
        split: whether rows come in partitions of Spark, which messages name; otherwise they are tables of a user.
    """

    verb: str
    input: Input
    key: str
    time: str
    op: str
    event_times: EventTimes
    value_serde: Serde[Any] | None
    on_error: OnError
    split: bool = True

    @property
    def topic(self) -> str:
        """The topic."""
        return self.input.topic

    @property
    def decoder(self) -> Decoder:
        """The decoder of packed rows for processors."""
        return Decoder(self.topic, None, self.value_serde, self.key, "value", REMEDY)

    @property
    def usable_decoder(self) -> None:
        """No decoder: usable rows are columns of Spark's."""
        return None

    @property
    def copies(self) -> int:
        """The number of keys of each row."""
        return self.input.copies

    def reader(self, split: int, keep_letter: KeepLetter | None = None) -> "RowReader":
        """Return a reader for one split; ``keep_letter`` takes the rows that it leaves out, if they are to be kept."""
        return RowReader(self, split, keep_letter)


class RowReader:
    """Reads the rows of one split, applying the policy for unusable ones."""

    def __init__(self, source: RowSource, split: int, keep_letter: KeepLetter | None = None) -> None:
        self._source = source
        self._unusable = Unusable(
            source.topic,
            source.on_error,
            split,
            keep_letter,
            numbered=source.split,
            whose=f"verb {source.verb!r}, {source.topic}",
        )
        self._packed = 0

    @property
    def skipped(self) -> Counter[str]:
        return self._unusable.skipped

    def usable(self, table: pa.Table) -> pa.Table:
        """Return the usable rows; rows that are kept without a time have a null ``timestamp``.

        Raises:
            RecordError: a row is unusable, and the policy is to fail.
        """
        source, given = self._source, table.num_rows
        if source.input.versions:
            table = self._unusable.ever_valid(table, source.event_times)
        table = self._unusable.timed(table, source.time, source.event_times, untimed=source.input.untimed)
        for column, most in source.input.most.items():
            table = self._unusable.up_to(table, column, most)
        if source.input.gap is not None:
            table = self._unusable.with_gap(table, source.input.gap)
        if source.input.null_keys is NullKeys.REFUSED:
            table = self._keyed(table)
        table, _ = self._unusable.changing(table, source.op)
        self._unusable.seen += given
        return table

    def spread(self, table: pa.Table) -> Iterator[pa.Table]:
        """Yield usable rows as often as they have keys, as ``Input.spread`` says."""
        return self._source.input.spread(table)

    def _keyed(self, table: pa.Table) -> pa.Table:
        """Return the rows without those that have a null in their key."""
        lacking = np.flatnonzero(null_rows(flattened(table["key"]))).tolist()
        return self._unusable.drop(table, lacking, CounterName.DROPPED_NULL_KEY, self._source.key)

    def packed(self, table: pa.Table, *, partial: bool = False) -> tuple[pa.Table, Any]:
        """Return the rows, packed, and the bytes of their keys: an array in the same order.

        Args:
            table: usable rows, or partial aggregates of them, whose values are packed already.
            partial: whether they are partial aggregates.
        """
        input_ = self._source.input
        times: Any = table["timestamp"].combine_chunks()
        untimed = times.is_null()
        if times.null_count:
            times = times.fill_null(NO_TIME)
            table = table.set_column(table.column_names.index("timestamp"), "timestamp", times)
        changes = changes_of(table["op"]) if "op" in table.column_names else None
        keys = input_.keys_of(table)
        values = table["value"] if partial else input_.values_of(table, changes)
        # A record without a key meets nothing; it goes to the task of its row's key nevertheless.
        meeting = pc.if_else(untimed, None, keys) if input_.untimed else keys
        columns: list[Any] = [meeting, values, times]
        packed = pa.table(columns, names=["key", "value", "timestamp"])
        if input_.in_order and not partial:
            packed = packed.append_column(TURN if input_.in_turn else PLACE, self._places(table))
        return packed, keys

    def _places(self, table: pa.Table) -> Any:
        """Return the places that decide among rows of one key and time: numbers that rows bring, or their order."""
        if PLACE in table.column_names:
            return table[PLACE]
        first, self._packed = self._packed, self._packed + table.num_rows
        return pa.array(np.arange(first, self._packed))
