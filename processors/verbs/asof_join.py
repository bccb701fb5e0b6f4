"""``asof_join``: each row of the left side with the row of the right side that was valid at its time (KIP-914).

Or with the first one that is valid from its time on, or with the closer one of the two; and of those that fulfill a
condition.

The right side is a versioned table. Right rows go first at equal times, so a row that is valid from a time is met by
left rows of that time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.options.joins import AsofDirection, Joined, JoinType, Side, Unfit
from millpond.processors.verbs.matching.asof_match import AsofMatching
from millpond.processors.verbs.projections import JoinedRows, Keys, Rows, Times, pairs
from millpond.processors.verbs.sequenced import sequenced_table
from millpond.processors.verbs.verb import PackedRows, Verb, null_safety
from millpond.stores.encoding.serdes import BYTES


@dataclass(frozen=True)
class Fitting:
    """Whether pairs of packed rows fulfill a condition on their columns. Travels to the workers.

    Attributes:
        rows: reads them.
        condition: takes the columns of both, and returns an Arrow array of booleans, null for those that do not.
    """

    rows: JoinedRows
    condition: Callable[[pa.Table], Any]

    def __call__(self, left: Any, right: Any) -> Any:
        names = [*self.rows.left_names, *self.rows.right_names]
        return self.condition(pa.Table.from_arrays(self.rows.of_pairs(pairs(left, right)), names))


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
) -> Verb:
    """The verb.

    Args:
        name: its name.
        left, right: its inputs, with topics ``left`` and ``right``.
        join_type: which left rows have a result, and whether with their matches.
        history: how far back from the newest time of a task the right side can be looked up, in microseconds. If rows
            are passed over, this is for the tolerance more than left rows may be late.
        grace: how long left rows wait for late rows of the right side, in microseconds; None to join them at once.
        tolerance: how far from a left row its match may be, in microseconds; None for any age.
        exact: whether a right row of the very time of a left row is a match.
        direction: which right row is the match. If it may be a newer one, left rows wait for the tolerance and the
            grace together, and both are given.
        where: the condition of a match on the columns of both sides, the left ones first, as in ``Fitting``; None if
            any right row is one.
        unfit: what a left row meets whose right row does not fulfill it. If it is the next one, there is a tolerance.
        columns: the right side's columns in the result, if it has any; the left side has all.
        default: what some of these have where there is no match, as scalars of Arrow; the others are null there.
        null_safe: whether null keys are equal.
    """
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    table = sequenced_table(builder, right.topic, "right", history, ordered=right.order is not None)
    stream = builder.stream(left.topic)
    names = left.rows.schemas.current.names
    join = stream.left_join if join_type.keeps(Side.LEFT) else stream.join
    fitting = None if where is None else Fitting(JoinedRows(left.rows, right.rows, names, columns), where)
    joined = Joined(
        grace=grace,
        within_history=grace is not None,
        tolerance=tolerance,
        exact=exact,
        direction=direction.value,
        where=fitting,
        otherwise=unfit.value,
    )
    results = join(table, pairs, joined, vectorized=True)
    if join_type is JoinType.ANTI:
        results = results.filter(_unmatched, vectorized=True)
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
    )
    return Verb(builder.build(), inputs, (rows,), stores, terms=null_safety(null_safe), matching=matching)


def _unmatched(keys: Any, values: Any) -> Any:
    """Which pairs of rows have no right one."""
    return values.field("right").is_null()
