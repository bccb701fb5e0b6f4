"""``asof_join``: each row of the left side with the row of the right side that was valid at its time (KIP-914).

Or with the first one that is valid from its time on, or with the closer one of the two; and only with rows that fulfill
a condition. Each left row comes out once, or else at once, and again as the right side is corrected.

The right side is a versioned table. Right rows go first at equal times, so a row that is valid from a time is met by
left rows of that time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.dsl.streams_and_tables import KStream, KTable
from millpond.processors.options.joins import AsofDirection, Joined, JoinType, Side, Unfit
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.streams.corrected_join import GONE, PAIR, CorrectedJoin, KeptSerde, NotedChanges
from millpond.processors.verbs.joins.asof_match import AsofMatching
from millpond.processors.verbs.projections import ChangeColumns, JoinedRows, Keys, Rows, Times, pairs
from millpond.processors.verbs.sequenced import sequenced_table
from millpond.processors.verbs.verb import PackedRows, Projection, Verb, null_safety
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.encoding.times import NO_TIME
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.terms import Terms, Written

pc: Any = _compute

CORRECTED: Final = "corrected"
"""The store of left rows whose results may still be corrected, and the node of the join."""

_SIDES: Final = pa.struct([("left", pa.binary()), ("right", pa.binary())])
"""The type of joined rows: two packed rows."""


@dataclass(frozen=True)
class Fitting:
    """A condition on the columns of pairs of packed rows. Travels to the workers.

    Attributes:
        rows: reads them.
        condition: takes the columns of both, and returns an Arrow array of booleans, null where it is not true.
    """

    rows: JoinedRows
    condition: Callable[[pa.Table], Any]

    def __call__(self, left: Any, right: Any) -> Any:
        names = [*self.rows.left_names, *self.rows.right_names]
        return self.condition(pa.Table.from_arrays(self.rows.of_pairs(pairs(left, right)), names))


@dataclass(frozen=True)
class Correcting:
    """The correction of results.

    Attributes:
        history: for how long after a left row's time, by the newest time of the left side, in microseconds.
        key: the columns of the left side that with those in ``on`` and its time tell left rows apart.
    """

    history: int
    key: Sequence[str]


@dataclass(frozen=True)
class Identities:
    """The columns that tell packed left rows of one key and time apart. Travels to the workers.

    Attributes:
        rows: reads them.
        names: the names of the columns.
    """

    rows: RowCodec
    names: Sequence[str]

    def __call__(self, packed: Any) -> Sequence[bytes]:
        columns = self.rows.unpack(packed).select(list(self.names))
        return KeyCodec(columns.schema).pack(columns)


@dataclass(frozen=True)
class CorrectedRows(Projection):
    """The columns of joined rows; the right columns are null where there is no result any more.

    Attributes:
        rows: makes the columns.
    """

    rows: JoinedRows

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def columns(self, batch: Batch, first: int) -> list[Any]:
        return self.rows.of_pairs(pa.array([one[PAIR] for one in batch.values], _SIDES))

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        return self.rows.of_pairs(columns.values.field(PAIR))


@dataclass(frozen=True)
class CorrectedChanges(ChangeColumns):
    """The operations of changes of joined rows: a row that is no result any more is a delete.

    The time is the left row's, null if it has none.
    """

    def columns(self, batch: Batch, first: int) -> list[Any]:
        made = super().columns(batch.with_values([None if one[GONE] else one for one in batch.values]), first)
        return _without_no_times(made, batch.timestamps)

    def of_columns(self, columns: Columns, first: int) -> list[Any]:
        there = pc.if_else(columns.values.field(GONE), pa.scalar(None, pa.bool_()), True)
        return _without_no_times(super().of_columns(columns.with_values(there), first), columns.timestamps)


def _without_no_times(made: list[Any], times: Any) -> list[Any]:
    """Return the columns of changes, the last of which is null where a row has no time."""
    timed = pa.array(np.asarray(times, np.int64) != NO_TIME)
    return [*made[:-1], pc.if_else(timed, made[-1], pa.scalar(None, made[-1].type))]


def asof_join(
    name: str,
    left: PackedRows,
    right: PackedRows,
    join_type: JoinType,
    *,
    history: int,
    grace: int | None,
    tolerance: int | None = None,
    exact: bool = True,
    direction: AsofDirection = AsofDirection.BACKWARD,
    where: Callable[[pa.Table], Any] | None = None,
    unfit: Unfit = Unfit.MISS,
    columns: Sequence[str],
    default: Mapping[str, Any] | None = None,
    null_safe: bool = False,
    correcting: Correcting | None = None,
) -> Verb:
    """Return the verb.

    Args:
        name: its name.
        left, right: its inputs, with topics ``left`` and ``right``.
        join_type: says which left rows have a result, and whether with their matches.
        history: how far back from the newest time of a task the right side can be looked up, in microseconds. If rows
            are passed over, this is for the tolerance more than left rows may be late.
        grace: how long left rows wait for late rows of the right side, in microseconds; None to join them at once.
        tolerance: how far from a left row its match may be, in microseconds; None for any age.
        exact: whether a right row of the very time of a left row is a match.
        direction: the right row that is the match. If it may be a newer one, left rows wait for the tolerance and the
            grace together, and both are given.
        where: the condition of a match on the columns of both sides, the left ones first, as in ``Fitting``; None if
            any right row is one.
        unfit: the match of a left row whose right row does not fulfill it. If it is the next one, there is a tolerance.
        columns: the right side's columns in the result, if it has any; the left side has all.
        default: the values of some of these where there is no match, as scalars of Arrow; the others are null there.
        null_safe: whether null keys are equal.
        correcting: the correction of results; None if each left row comes out once. There is no grace then, and a
            direction that looks ahead has a tolerance.
    """
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    ordered = right.order is not None
    table = sequenced_table(builder, right.topic, "right", history, ordered=ordered, in_turn=right.in_turn)
    stream = builder.stream(left.topic)
    names = left.rows.schemas.current.names
    fitting = None if where is None else Fitting(JoinedRows(left.rows, right.rows, names, columns), where)
    if correcting is None:
        joined = Joined(
            grace=grace,
            within_history=grace is not None,
            tolerance=tolerance,
            exact=exact,
            direction=direction.value,
            where=fitting,
            otherwise=unfit.value,
        )
        results = _joined(stream, table, joined, join_type)
    else:
        made = partial(
            CorrectedJoin,
            "right",
            sides,
            join_type,
            store=CORRECTED,
            identity=Identities(left.rows, correcting.key),
            tolerance=tolerance,
            exact=exact,
            direction=direction,
            where=fitting,
            unfit=unfit,
        )
        results = _corrected(stream, table, made, join_type, correcting)
    results.to(name)
    shown = columns if join_type.shows_right else ()
    rows = JoinedRows(left.rows, right.rows, names, shown, default=default or {})
    stores = {"right": (Keys.of_rows(right), Rows(right.rows, columns), Times("valid_from", right.times))}
    inputs = {right.topic: right, left.topic: left}
    matching = AsofMatching(
        left,
        right,
        JoinedRows(left.rows, right.rows, (), columns, default=default or {}),
        join_type,
        tolerance,
        exact,
        direction,
        fitting,
        unfit,
        corrected=correcting is not None,
    )
    parts: Sequence[Projection] = (rows,)
    if correcting is not None:
        parts = CorrectedRows(rows), CorrectedChanges(left.times)
    return Verb(builder.build(), inputs, parts, stores, terms=null_safety(null_safe), matching=matching)


def _joined(stream: KStream, table: KTable, joined: Joined, join_type: JoinType) -> KStream:
    """Return each left row once, and its match."""
    join = stream.left_join if join_type.keeps(Side.LEFT) else stream.join
    results = join(table, pairs, joined, vectorized=True)
    return results.filter(unmatched, vectorized=True) if join_type is JoinType.ANTI else results


def _corrected(
    stream: KStream, table: KTable, made: Callable[[], CorrectedJoin], join_type: JoinType, correcting: Correcting
) -> KStream:
    """Return each left row and its match, and whatever changes them."""
    terms = Terms((("how", join_type.value), ("left_key", Written(list(correcting.key)))))
    spec = StoreSpec(
        CORRECTED,
        StoreKind.WINDOW,
        BYTES,
        KeptSerde(),
        retention=correcting.history + 1,
        window_size=1,
        terms=terms,
    )
    results = stream.process(made, stores=[spec, "right"], name=CORRECTED, keeps_key=True, value_serde=BYTES)
    table.to_stream().process(partial(NotedChanges, CORRECTED), name="right-changes", keeps_key=True)
    return results


def sides(keys: Any, left: Any, right: Any) -> Any:
    """Return ``pairs``, without the keys."""
    return pairs(left, right)


def unmatched(keys: Any, values: Any) -> Any:
    """Return which pairs of rows have no right one."""
    return values.field("right").is_null()
