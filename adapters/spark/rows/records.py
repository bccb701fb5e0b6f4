"""From the rows of a Spark partition to records, with a policy for unusable ones.

Rule of this module: what only the data can tell is checked here, and each value is decoded once, where its record is
processed: in this worker, or by the task that it is sent to. Only where unusable records are to be skipped, what is
sent on is decoded here as well, to be judged: a record that is left out must not count in the order of the others.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import SerdeError
from millpond.processors.distribution.exchange import windows
from millpond.processors.distribution.execution import Decoder
from millpond.processors.distribution.header_column import HEADERS, has_nameless, without_empty_headers
from millpond.processors.options.on_error import OnError
from millpond.processors.rows.event_times import EventTimes
from millpond.processors.rows.unusable import REMEDY, KeepLetter, Unusable, positions
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Records
from millpond.processors.runtime.counters import CounterName
from millpond.processors.verbs.change_feed import Change
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import BYTES, Serde


@dataclass(frozen=True)
class Source:
    """The way in which the records of one source topic are read. Travels to the workers.

    Attributes:
        topic: the topic.
        key, value, timestamp: the names of the DataFrame's columns, for messages.
        key_serde: writes a key's bytes, or reads them if the column is binary.
        value_serde: reads binary values; None if values are taken as they are.
        decode_key: whether the key column holds serialized keys.
        op: the name of the column that says which rows are deletes; empty if none are.
        event_times: which timestamps are usable.
        on_error: what happens to unusable records.
    """

    topic: str
    key: str
    value: str
    timestamp: str
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    decode_key: bool
    op: str
    event_times: EventTimes
    on_error: OnError

    @property
    def decoder(self) -> Decoder:
        """The decoder that turns the columns key and value into what processors see."""
        key_serde = self.key_serde if self.decode_key else None
        return Decoder(self.topic, key_serde, self.value_serde, self.key, self.value, REMEDY)

    @property
    def usable_decoder(self) -> Decoder:
        """The same: what travels is what was read."""
        return self.decoder

    @property
    def copies(self) -> int:
        """Each record has one key."""
        return 1

    def reader(self, split: int, keep_letter: KeepLetter | None = None) -> "RecordReader":
        """Return a reader for one split; ``keep_letter`` takes the records that it leaves out, if they are kept."""
        return RecordReader(self, split, keep_letter)


class RecordReader:
    """Reads the records of one split, applying the policy for unusable ones.

    Attributes:
        skipped: how many records were left out so far, by reason.
    """

    def __init__(self, source: Source, split: int, keep_letter: KeepLetter | None = None) -> None:
        self._source = source
        self._unusable = Unusable(source.topic, source.on_error, split, keep_letter, HEADERS)
        self._judges = source.on_error is not OnError.FAIL
        self._taken = 0

    @property
    def skipped(self) -> Counter[str]:
        return self._unusable.skipped

    def usable(self, table: pa.Table) -> pa.Table:
        """Return the usable records of the next rows; keys that their serde cannot read are left in.

        Raises:
            RecordError: a record is unusable, and the policy is to fail.
        """
        source = self._source
        self._unusable.seen += self._taken
        table = self._unusable.drop(
            table, positions(pc.is_null(table["key"])), CounterName.DROPPED_NULL_KEY, source.key
        )
        table = self._changing(self._timed(table))
        if self._judges and source.value_serde is not None:
            refused: list[int] = []
            deque(_attempt(source.value_serde.deserialize, table["value"].to_pylist(), refused), maxlen=0)
            table = self._unusable.drop(table, refused, CounterName.DROPPED_BAD_VALUE, source.value)
        self._taken = table.num_rows
        return table

    def spread(self, table: pa.Table) -> Iterator[pa.Table]:
        """Yield the records: each has one key."""
        yield table

    def packed(self, table: pa.Table, *, partial: bool = False) -> tuple[pa.Table, Any]:
        """Return records, and the bytes of their keys: an array in the same order.

        Args:
            table: usable records, or partial aggregates of them.
            partial: whether they are partial aggregates.

        Raises:
            RecordError: a record is unusable, and the policy is to fail.
        """
        packed, keys = self._key_bytes(table)
        self._taken -= table.num_rows - packed.num_rows
        return packed, keys

    def batches(self, table: pa.Table) -> Iterator[Records]:
        """Yield the usable records of the next rows, decoded; here a record needs no key.

        Raises:
            RecordError: a record is unusable, and the policy is to fail.
        """
        for window in windows(self._changing(self._timed(table))):
            yield self._decoded(window)
            self._unusable.seen += len(window)

    def _timed(self, table: pa.Table) -> pa.Table:
        """Return the rows with good timestamps."""
        table = self._unusable.timed(table, self._source.timestamp, self._source.event_times)
        return without_empty_headers(self._named(table))

    def _named(self, table: pa.Table) -> pa.Table:
        """Return the rows whose headers all have a name."""
        if HEADERS not in table.column_names:
            return table
        nameless = positions(has_nameless(table[HEADERS]))
        return self._unusable.drop(table, nameless, CounterName.DROPPED_BAD_VALUE, HEADERS)

    def _changing(self, table: pa.Table) -> pa.Table:
        """Return the rows that change something; a delete has no value."""
        table, changes = self._unusable.changing(table, self._source.op)
        if changes is None:
            return table
        present: Any = pa.array(
            [None if change is Change.DELETE else i for i, change in enumerate(changes)], pa.int64()
        )
        return table.set_column(1, "value", table["value"].take(present)).drop_columns(["op"])

    def _key_bytes(self, table: pa.Table) -> tuple[pa.Table, Any]:
        """Return the rows with good keys, and the keys' bytes."""
        reader, column, decode = self._source.key_serde, table["key"].combine_chunks(), self._source.decode_key
        assert reader is not None
        columns = column_serde(BYTES if decode else reader)
        if columns is not None and columns.takes(column.type) and not (decode and self._judges):
            return table, columns.write(column)
        refused: list[int] = []
        attempted = list(_attempt(reader.deserialize if decode else reader.serialize, column.to_pylist(), refused))
        table = self._unusable.drop(table, refused, CounterName.DROPPED_BAD_KEY, self._source.key)
        return table, table["key"].combine_chunks() if decode else pa.array(_without(attempted, refused), pa.binary())

    def _decoded(self, window: Records) -> Records:
        source, decoder = self._source, self._source.decoder
        columns = decoder.decode_columns(window)
        if columns is not None:
            return columns
        raw = window.to_batch()
        values, bad_values = _decode(decoder.value_serde, raw.values)
        keys, bad_keys = _decode(decoder.key_serde, raw.keys)
        batch = Batch(keys, values, raw.timestamps, headers=raw.headers)
        if not bad_values and not bad_keys:
            return batch
        self._unusable.refuse(bad_values, CounterName.DROPPED_BAD_VALUE, source.value, lambda row: _shown(raw, row))
        left = sorted(set(bad_keys).difference(bad_values))
        self._unusable.refuse(left, CounterName.DROPPED_BAD_KEY, source.key, lambda row: _shown(raw, row))
        dropped = {*bad_values, *bad_keys}
        return batch.select([i not in dropped for i in range(len(batch))])


def _attempt(operation: Callable[[Any], Any], entries: Iterable[Any], refused: list[int]) -> Iterator[Any]:
    """Yield the operation's results, None for None; the positions of entries that it refuses go to ``refused``."""
    for i, entry in enumerate(entries):
        try:
            result = None if entry is None else operation(entry)
        except SerdeError:
            refused.append(i)
            result = None
        yield result


def _decode(reader: Serde[Any] | None, column: list[Any]) -> tuple[list[Any], list[int]]:
    """Return what the serde reads, and the positions that it cannot read; the column as it is without a serde."""
    refused: list[int] = []
    return (column if reader is None else list(_attempt(reader.deserialize, column, refused))), refused


def _shown(batch: Batch, row: int) -> dict[str, Any]:
    entries = {"key": batch.keys[row], "value": batch.values[row], "timestamp": batch.timestamps[row]}
    if batch.headers is not None:
        entries[HEADERS] = [{"key": name, "value": data} for name, data in batch.headers[row]]
    return entries


def _without(entries: list[Any], dropped: list[int]) -> list[Any]:
    if not dropped:
        return entries
    apart = set(dropped)
    return [entry for i, entry in enumerate(entries) if i not in apart]
