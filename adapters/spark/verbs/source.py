"""The rows of a verb's input on their way to tasks: columns that Spark evaluates, then packed keys and values.

Rule of this module: it applies the policy for unusable rows; how a row is packed is the verb's business.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.adapters.spark.changes import changing
from millpond.adapters.spark.event_times import EventTimes
from millpond.adapters.spark.unusable import REMEDY, Bury, Unusable
from millpond.processors.distribution.execution import Decoder
from millpond.processors.options.on_error import OnError
from millpond.processors.runtime.counters import CounterName
from millpond.processors.verbs.verb import Input
from millpond.stores.serdes import Serde


@dataclass(frozen=True)
class RowSource:
    """How the rows of one input are read. Travels to the workers.

    Attributes:
        input: how rows become records.
        key, time, op: what messages call the columns.
        event_times: which times are usable.
        value_serde: reads packed values; None if processors take them as bytes.
        on_error: what happens to unusable rows.
    """

    input: Input
    key: str
    time: str
    op: str
    event_times: EventTimes
    value_serde: Serde[Any] | None
    on_error: OnError

    @property
    def topic(self) -> str:
        """The topic."""
        return self.input.topic

    @property
    def decoder(self) -> Decoder:
        """How what travels becomes what processors see."""
        return Decoder(self.topic, None, self.value_serde, self.key, "value", REMEDY)

    def reader(self, split: int, bury: Bury | None = None) -> "RowReader":
        """A reader for one split; ``bury`` takes the rows that it leaves out, if they are to be kept."""
        return RowReader(self, split, bury)


class RowReader:
    """Reads the rows of one split, applying the policy for unusable ones."""

    def __init__(self, source: RowSource, split: int, bury: Bury | None = None) -> None:
        self._source = source
        self._unusable = Unusable(source.topic, source.on_error, split, bury)

    @property
    def skipped(self) -> Counter[str]:
        return self._unusable.skipped

    def rows(self, table: pa.Table) -> tuple[pa.Table, Any]:
        """The usable rows, packed, and the bytes of their keys: an array in that order.

        Raises:
            RecordError: a row is unusable, and the policy is to fail.
        """
        source, input_, given = self._source, self._source.input, table.num_rows
        table = self._unusable.drop(table, input_.keyless(table), CounterName.DROPPED_NULL_KEY, source.key)
        table = self._unusable.timed(table, source.time, source.event_times)
        table, changes = changing(table, self._unusable, source.op)
        keys: Any = pa.array(input_.keys_of(table), pa.binary())
        columns: list[Any] = [
            keys,
            input_.values_of(table, changes),
            table["timestamp"].combine_chunks(),
        ]
        self._unusable.seen += given
        return pa.table(columns, names=["key", "value", "timestamp"]), keys
