"""``top_n``: the first rows of each key by an order, for ever or of each window, and the changes at each rank.

The state of a key, or of a key and window, is its first n rows, each behind the bytes of its order. So a row that has
been pushed out is forgotten, which is why rows must stay: a row that left would have to be followed by one that is
gone. A micro-batch gives one net change for each rank that holds another row than before it: a delete
where there is none any more, then the others from the first rank on.

Rule of this module: bytes of orders are written here. A column has the bytes of a key (``KeyCodec``), which the bytes
of no other value begin with; where the greatest comes first, each bit is flipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.dsl.streams_and_tables import KStream
from millpond.processors.options.materialized import Materialized
from millpond.processors.options.records import Consumed
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns, spread
from millpond.processors.runtime.batches.windowed_columns import windowed_keys
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.promises import Promises
from millpond.processors.verbs.aggregate import (
    NO_CHANGES,
    WindowedKeys,
    Windows,
    aggregated_table,
    changed_windows,
)
from millpond.processors.verbs.change_feed import Change
from millpond.processors.verbs.functions.columns import listed, lists_of
from millpond.processors.verbs.functions.top import ORDERED_ROWS, STATE_SERDE, TOP, first_rows
from millpond.processors.verbs.projections import CHANGE_TIME, ChangeColumns, Keys, Times
from millpond.processors.verbs.row_aggregate import InputSerde
from millpond.processors.verbs.verb import PackedRows, Projection, Verb, chosen, flattened, nullable
from millpond.stores.encoding.rows.byte_columns import buffer, offsets_of
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.physical import from_physical
from millpond.stores.encoding.rows.row_columns import PackedRowType, PhysicalRowType
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.typed.expiry import Expired
from millpond.stores.typed.terms import Written
from millpond.stores.typed.windows.windowed import Windowed

pc: Any = _compute

RANK: Final = "rank"
"""The column with the rank of a row, from 1 on."""

STORE: Final = "top_n"
"""The store, and in what it shows, the column with the rows of a key by rank."""

INPUT_SERDE: Final = InputSerde(ORDERED_ROWS)
"""Reads packed rows behind their orders."""

_RANKED: Final = pa.struct([(RANK, pa.int32()), ("row", pa.binary())])
"""The type of results: a rank, and its row, null where there is none any more."""


@dataclass(frozen=True)
class OrderedRows(PackedRows):
    """Rows behind the bytes of their orders.

    Attributes:
        descending: whether the greatest come first, by the fields of the order; or for all of it, if it is one.
    """

    descending: tuple[bool, ...] = (False,)

    @classmethod
    def of(cls, rows: PackedRows, descending: tuple[bool, ...]) -> "OrderedRows":
        """Return rows that have an order, ranked in these directions."""
        return cls(**{one.name: getattr(rows, one.name) for one in fields(rows)}, descending=descending)

    def values_of(self, rows: pa.Table, changes: Sequence[Change | None] | None = None) -> Any:
        parts = [self._orders(flattened(rows["order"])), self.packed(rows)]
        return PackedRowType.of(pa.StructArray.from_arrays(parts, fields=list(ORDERED_ROWS)))

    def columns_of(self, values: Sequence[Any]) -> pa.Table:
        return self.rows.unpack([row for _, row in values])

    def _orders(self, order: pa.Table) -> Any:
        """Return bytes that compare as the orders do."""
        whole = order.column(0)
        columns = [whole] if len(self.descending) == 1 else flattened(whole).columns
        parts = []
        for column, descending in zip(columns, self.descending, strict=True):
            alone = pa.Table.from_arrays([column], [RANK])
            packed = KeyCodec(alone.schema).pack_columns(alone)
            parts.append(_flipped(packed) if descending else packed)
        return pc.binary_join_element_wise(*parts, b"")


def _flipped(column: Any) -> Any:
    """Return the bytes of a column without nulls, each bit the other one, so that they compare the other way round."""
    offsets = offsets_of(column)
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    return pa.Array.from_buffers(pa.binary(), len(column), [None, buffer(offsets - offsets[0]), buffer(~data)])


class RankChanges(Operator):
    """Makes changes of ranks of updates of the rows that keys have; without the rows before, of all of them."""

    promises = Promises(by_key=True)

    def process(self, batch: Batch) -> None:
        states = [batch.values, batch.olds or [None] * len(batch)]
        values, olds = (PhysicalRowType.of(from_physical(column, TOP)) for column in states)
        times = np.asarray(batch.timestamps, np.int64)
        positions = None if batch.positions is None else np.asarray(batch.positions, np.int64)
        self.process_columns(Columns(_keys(batch.keys), values, times, positions, olds))

    def process_columns(self, columns: Columns) -> None:
        updates, changes = _rank_changes(columns.values, columns.olds)
        if len(updates):
            self.context.forward_columns(columns.as_stream().taken(updates).with_values(changes))


def _keys(keys: Sequence[Any]) -> Any:
    """Return keys of one kind as a column."""
    if not isinstance(keys[0], Windowed):
        return pa.array(keys, pa.binary())
    plain, *bounds = ([windowed[place] for windowed in keys] for place in range(3))
    starts, ends = (np.array(times, np.int64) for times in bounds)
    return windowed_keys(pa.array(plain, pa.binary()), starts, ends)


def _rank_changes(values: Any, olds: Any) -> tuple[Any, Any]:
    """Return the changes of ranks: the place of the update, and a column of ``_RANKED``.

    Args:
        values: the states of keys, null where there is none any more.
        olds: the states before; None if there are none.
    """
    rows, lengths = listed(values.storage.flatten()[1])
    before, lengths_before = (rows.slice(0, 0), 0 * lengths) if olds is None else listed(olds.storage.flatten()[1])
    updates, ranks = spread(lengths)
    starts = np.cumsum(lengths_before) - lengths_before
    there = ranks < lengths_before[updates]
    same = there.copy()
    held = pa.array((starts[updates] + ranks)[there])
    same[there] = pc.equal(rows.filter(pa.array(there)), before.take(held)).to_numpy(zero_copy_only=False)
    new = ~same
    of_olds, ranks_before = spread(lengths_before)
    gone = ranks_before >= lengths[of_olds]
    owners = np.concatenate([of_olds[gone], updates[new]])
    changed_ranks = np.concatenate([ranks_before[gone], ranks[new]])
    changed = pa.concat_arrays([pa.nulls(int(gone.sum()), pa.binary()), rows.filter(pa.array(new))])
    deletes_first = np.arange(len(owners)) >= gone.sum()
    order = np.lexsort((changed_ranks, deletes_first, owners))
    columns = [_as_ranks(changed_ranks[order]), changed.take(pa.array(order))]
    return owners[order], pa.StructArray.from_arrays(columns, fields=list(_RANKED))


@dataclass(frozen=True)
class RankedRows(Projection):
    """The rank, and the columns of its row; nulls where there is none any more.

    Attributes:
        codec: reads the rows.
        names: the columns of them.
    """

    codec: RowCodec
    names: Sequence[str]

    @property
    def schema(self) -> pa.Schema:
        rows = nullable(chosen(self.codec.schemas.current, self.names))
        return pa.schema([pa.field(RANK, pa.int32()), *rows])

    @property
    def identity(self) -> Sequence[str]:
        return [RANK]

    def columns(self, batch: Batch, first: int) -> list[Any]:
        return self.of_structs(pa.array(batch.values, _RANKED))

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        return self.of_structs(columns.values)

    def of_structs(self, ranked: Any) -> list[Any]:
        """Return the columns, of structs of a rank and a packed row."""
        ranks, packed = ranked.flatten()
        rows = self.codec.unpack(packed)
        return [ranks, *(rows.column(name) for name in self.names)]


@dataclass(frozen=True)
class RankChangeColumns(ChangeColumns):
    """The columns that tell changes of ranks apart: a change without a row is a delete."""

    def columns(self, batch: Batch, first: int) -> list[Any]:
        return super().columns(batch.with_values([value["row"] for value in batch.values]), first)

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        return super().of_columns(columns.with_values(columns.values.field("row")), first)


@dataclass(frozen=True)
class KeptRows(Projection):
    """The rows of a key, by rank: a list of structs with the rank and the columns.

    Attributes:
        ranked: makes the columns of each.
    """

    ranked: RankedRows

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(STORE, self.type)])

    @property
    def type(self) -> pa.DataType:
        """Of the column."""
        return pa.list_(pa.field("element", pa.struct(list(self.ranked.schema)), nullable=False))

    def columns(self, batch: Batch, first: int) -> list[Any]:
        return [self.of_states(from_physical(batch.values, TOP))]

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        return [self.of_states(columns.values.storage)]

    def of_states(self, states: Any) -> Any:
        """Return the column, of structs of ``TOP``."""
        packed, lengths = listed(states.flatten()[1])
        ranked = pa.StructArray.from_arrays([_as_ranks(spread(lengths)[1]), packed], fields=list(_RANKED))
        columns = [_whole(column) for column in self.ranked.of_structs(ranked)]
        rows = pa.StructArray.from_arrays(columns, fields=list(self.ranked.schema))
        return lists_of(rows, lengths, self.type)


def _as_ranks(places: Any) -> Any:
    """Return ranks, from 1 on, of places from 0 on."""
    return pa.array((places + 1).astype(np.int32))


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def top_n(
    name: str,
    rows: OrderedRows,
    n: int,
    windows: Windows | None,
    *,
    columns: Sequence[str],
    final: bool,
    until: Mapping[int, Windows] = NO_CHANGES,
    ttl: int | None = None,
    expired: Expired = Expired.SILENT,
) -> Verb:
    """Return the verb.

    Args:
        name: its name.
        rows: its input, with the topic ``input``, and an order.
        n: how many rows of each key are kept.
        windows: the windows, in milliseconds, as the user gave them; None for all rows of a key.
        columns: the columns of the result, besides the key's.
        final: whether the rows of a window come out once, when it closes, instead of changes.
        until: the windows that begin before some time, by that time, in microseconds.
        ttl: how long the rows of a key live after the last that came, in microseconds, where there are no windows;
            None for ever.
        expired: the treatment of expired rows.
    """
    builder = StreamsBuilder(key_serde=BYTES, value_serde=STATE_SERDE)
    grouped = builder.stream(rows.topic, Consumed(BYTES, INPUT_SERDE)).group_by_key()
    kept = Materialized(STORE, value_serde=STATE_SERDE, caching=not final, ttl=ttl, expired=expired)
    cut = None if windows is None else changed_windows(windows, until)
    table = aggregated_table(grouped, first_rows(name, rows.keys, n), cut, kept, final=final)
    if not final:
        table.send_olds(force=True)
    KStream(table.as_stream().then("KTABLE-RANKS-", RankChanges)).to(name)
    keys = Keys.of_rows(rows) if cut is None else WindowedKeys(rows.keys, cut, rows.times)
    ranked = RankedRows(rows.rows, columns)
    parts = (keys, ranked) if final else (keys, ranked, RankChangeColumns(rows.times))
    stores = {STORE: (keys, KeptRows(ranked), Times(CHANGE_TIME, rows.times))}
    follows_time = windows is not None or ttl is not None
    terms = {"n": Written(n), "descending": _shown(rows.descending)}
    return Verb(builder.build(), {rows.topic: rows}, parts, stores, follows_time=follows_time, terms=terms)


def _shown(descending: Sequence[bool]) -> Written:
    """Return directions as a user writes them."""
    return Written(descending[0] if len(descending) == 1 else list(descending))
