"""``lookup_join``: each left row with the row of a table elsewhere that was valid at its time.

Nothing is kept: left rows come out at once, by the version of the table that their micro-batch reads.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa

from millpond.errors import ProcessorUseError
from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.options.joins import AsofDirection, JoinType, Side, Unfit
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.streams.vectorized_table_join import VectorizedStreamTableJoin
from millpond.processors.tables.table_view import TableView, ViewFactory
from millpond.processors.verbs.joins.asof_join import Fitting, sides, unmatched
from millpond.processors.verbs.joins.asof_match import AsofMatching
from millpond.processors.verbs.joins.table_rows import TableRows
from millpond.processors.verbs.projections import JoinedRows
from millpond.processors.verbs.verb import PackedRows, Verb
from millpond.stores.encoding.serdes import BYTES

LOOKED_UP: Final = "right"
"""The name of the table in its verb."""


def lookup_join(
    name: str,
    left: PackedRows,
    right: TableRows,
    join_type: JoinType,
    *,
    tolerance: int | None,
    exact: bool,
    direction: AsofDirection,
    where: Callable[[pa.Table], Any] | None,
    unfit: Unfit,
    columns: Sequence[str],
    default: Mapping[str, Any],
) -> Verb:
    """Return the verb.

    Args:
        name: its name.
        left: its input, with the topic ``left``.
        right: the table.
        join_type: says which left rows have a result, and whether with their matches.
        tolerance: how far from a left row its match may be, in microseconds; None for any age.
        exact: whether a right row of the very time of a left row is a match.
        direction: the right row that is the match. If it may be a newer one, there is a tolerance.
        where: the condition of a match on the columns of both sides, the left ones first; None if any right row is one.
        unfit: the match of a left row whose right row does not fulfill it. If it is the next one, there is a tolerance.
        columns: the columns of right rows.
        default: the values of some of these where there is no match, as scalars of Arrow; the others are null there.
    """
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    names, theirs = left.rows.schemas.current.names, right.packed.rows
    fitting = None if where is None else Fitting(JoinedRows(left.rows, theirs, names, columns), where)
    made = partial(
        VectorizedStreamTableJoin,
        ViewFactory((), _table),
        sides,
        JoinType.LEFT if join_type.keeps(Side.LEFT) else JoinType.INNER,
        tolerance=tolerance,
        exact=exact,
        direction=direction,
        where=fitting,
        unfit=unfit,
    )
    results = builder.stream(left.topic).process(made, name="lookup", keeps_key=True, value_serde=BYTES)
    if join_type is JoinType.ANTI:
        results = results.filter(unmatched, vectorized=True)
    results.to(name)
    rows = JoinedRows(left.rows, theirs, names, columns if join_type.shows_right else (), default=default)
    shown = JoinedRows(left.rows, theirs, (), columns, default=default)
    matching = AsofMatching(left, right.packed, shown, join_type, tolerance, exact, direction, fitting, unfit)
    tables = {LOOKED_UP: right}
    return Verb(builder.build(), {left.topic: left}, (rows,), follows_time=False, matching=matching, tables=tables)


def _table(context: ProcessorContext) -> TableView:
    return context.shared(LOOKED_UP, _unopened)


def _unopened() -> TableView:
    raise ProcessorUseError(f"the driver of this task has not opened the table {LOOKED_UP!r}")
