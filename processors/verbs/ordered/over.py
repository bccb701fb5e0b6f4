"""``over``: each row once, with results of the rows of its key up to it: running aggregates, and single earlier rows.

It is SQL's ``OVER (PARTITION BY key ORDER BY time ...)``. A frame is all rows up to a row, itself included, or the last
so many of them (``ROWS BETWEEN n - 1 PRECEDING AND CURRENT ROW``), or all that are at most so much earlier, with all
that have its time (``RANGE BETWEEN ... PRECEDING AND CURRENT ROW``).

Rows wait until nothing earlier can come (``rows_in_time``), so results stay right, however rows come. With a
time to live a key is forgotten that has had no row for that long, and the next row is its first.

Rule of this module: it brings rows and the state of their keys together; ``taken_rows`` makes results of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.aggregations.column_fold import inverse
from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.options.records import Consumed
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.verbs.ordered.over_spec import STORE, Calls, Frame, OverSpec
from millpond.processors.verbs.ordered.over_state import OverState
from millpond.processors.verbs.ordered.taken_rows import TakenRows
from millpond.processors.verbs.projections import Keys, Times
from millpond.processors.verbs.rows_in_time import RowsInTime, in_order
from millpond.processors.verbs.verb import PackedRows, Projection, Verb, chosen, nullable
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.physical import from_physical
from millpond.stores.encoding.rows.row_columns import PhysicalRowType
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.encoding.times import MAX_TIME
from millpond.stores.typed.terms import Written
from millpond.stores.typed.timestamped_columns import TimestampedColumns
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore

pc: Any = _compute

LAST_TIME: Final = "last_time"
"""The column with the time of that row."""


class Over(RowsInTime):
    """Passes each row on with its results."""

    def __init__(self, spec: OverSpec) -> None:
        super().__init__(spec)
        self._spec = spec

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        store: TimestampedKeyValueStore[bytes, Any] = context.store(STORE)
        keys = column_serde(BYTES)
        assert keys is not None
        self._kept = TimestampedColumns(store, keys, self._spec.state_serde.columns)
        self._expiry = store.expiry

    def observe(self, time: int) -> None:
        if self._expiry is not None:
            self._expiry.observe(time)

    def complete(self) -> None:
        """Take all rows that wait, as if the clock had come so far; so whatever comes behind them later is late."""
        time = None if self._buffer is None else self._buffer.stream_time
        if time is not None:
            self.advance(min(time + self._in_time.late + 1, MAX_TIME))

    def take(self, rows: Columns) -> None:
        encoded = rows.keys.dictionary_encode()
        sorted_keys = pc.sort_indices(encoded.dictionary)
        keys, numbers = encoded.dictionary.take(sorted_keys), inverse(sorted_keys)[encoded.indices.to_numpy()]
        order = in_order(numbers, rows.timestamps, rows.values)
        found, times = self._kept.get(keys)
        taken = TakenRows(self._spec, keys, numbers[order], self.plain(rows.taken(order)), found, times)
        results, kept = taken.pass_on()
        self._kept.put(keys, kept, taken.last_times)
        fields = [pa.field("row", pa.binary()), pa.field("results", results.type)]
        values = pa.StructArray.from_arrays([taken.rows.values, results], fields=fields)
        # Rows are in the order of their keys.
        ascending = taken.rows.timestamps.argsort(kind="stable")
        self.context.forward_columns(taken.rows.with_values(values).taken(ascending))


@dataclass(frozen=True)
class ResultsOfRows(Projection):
    """The columns of a row, and its results.

    Attributes:
        codec: reads the rows.
        names: the columns of them.
        results: the results.
    """

    codec: RowCodec
    names: Sequence[str]
    results: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*nullable(chosen(self.codec.schemas.current, self.names)), *self.results])

    def columns(self, batch: Batch, first: int) -> list[Any]:
        fields = [pa.field("row", pa.binary()), pa.field("results", pa.struct(list(self.results)))]
        return self._columns(pa.array(batch.values, pa.struct(fields)))

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        return self._columns(columns.values)

    def _columns(self, values: Any) -> list[Any]:
        packed, results = values.flatten()
        rows = self.codec.unpack(packed)
        return [*(rows.column(name) for name in self.names), *results.flatten()]


@dataclass(frozen=True)
class LastResults(Projection):
    """The results of a key's last row, of the calls that aggregate.

    Attributes:
        calls: make them of states.
        state: the form of the state.
    """

    calls: Calls
    state: OverState

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([]) if self.calls.aggregate is None else nullable(self.calls.aggregate.schema)

    def columns(self, batch: Batch, first: int) -> list[Any]:
        return self._columns(from_physical(batch.values, self.state.struct))

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        return self._columns(columns.values.storage)

    def _columns(self, kept: Any) -> list[Any]:
        aggregate = self.calls.aggregate
        if aggregate is None:
            return []
        states = self.state.states_of(PhysicalRowType.of(kept))
        fields = list(self.calls.states)
        return aggregate.results_of_columns(PhysicalRowType.of(pa.StructArray.from_arrays(states, fields=fields)))


def over(
    name: str,
    rows: PackedRows,
    calls: Calls,
    arguments: Mapping[str, str],
    frame: Frame,
    *,
    late: int,
    ttl: int | None,
    columns: Sequence[str],
) -> Verb:
    """Return the verb.

    Args:
        name: its name.
        rows: its input, with the topic ``input``.
        calls: the results.
        arguments: by the names of the results that take values, the columns of the rows with these.
        frame: the rows that count for each.
        late: how late a row may be, and so how long each waits, in microseconds.
        ttl: the time without a row after which a key begins anew, in microseconds; None for never.
        columns: the columns of the result that rows have, besides the key's.
    """
    taken = {name: arguments[name] for name in calls.arguments.names}
    spec = OverSpec(late, True, rows.order is not None, calls, taken, rows.rows, frame, ttl)
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    stream = builder.stream(rows.topic, Consumed(BYTES, BYTES))
    stream.process(partial(Over, spec), stores=spec.stores, name=name, keeps_key=True).to(name)
    keys = Keys.of_rows(rows)
    kept = LastResults(calls, spec.state)
    stores = {STORE: (keys, kept, Times(LAST_TIME, rows.times))}
    terms = {
        "last": Written(frame.rows),
        "within": Written(None) if frame.within is None else frame.within,
    }
    parts = (keys, ResultsOfRows(rows.rows, columns, calls.schema))
    return Verb(builder.build(), {rows.topic: rows}, parts, stores, terms=terms)
