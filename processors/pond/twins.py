"""The comparison of written rows with those that a verb makes of all rows at once.

Rule of this module: it compares tables, and knows no verb.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.calls.arguments import moment_of
from millpond.processors.calls.reports.batch_twin import (
    Differs,
    Unequal,
    Verification,
    check_interval,
    check_key,
    paired,
)
from millpond.processors.calls.tables import Rows
from millpond.processors.pond.frames import Frame, field_of, table_of
from millpond.processors.pond.marks import rows_of
from millpond.processors.verbs.projections import CHANGE_COLUMNS, OP, SEQUENCE
from millpond.stores.encoding.times import Instant

pc: Any = _compute


def verified(
    computed: pa.Table,
    written: Frame,
    *,
    key: Sequence[str],
    time: str | None,
    since: Instant | str | None,
    until: Instant | str | None,
    shown: int,
) -> Verification:
    """Compare the rows that were written with those that were computed.

    Args:
        computed: the result of a verb of all rows.
        written: the rows that came out of it, micro-batch by micro-batch.
        key: the columns of the key.
        time: the column of times, if only rows of an interval count; of a struct, its path.
        since: the beginning of the interval; None for all rows from the first.
        until: its end, which is left out; None for all rows to the last.
        shown: how many differences to show at most.

    Raises:
        ConfigurationError: rows have other columns, a change feed has no key, or the interval no time.
    """
    check_interval(time, since, until)
    given = table_of("written", written, computed.schema)
    feed = rows_of(Rows, "computed", computed.schema).feed is not None
    check_key(key, computed.schema.names, feed=feed)
    sides = [_rows(_last(table, key) if feed else table, time, since, until) for table in (given, computed)]
    left_out = CHANGE_COLUMNS if feed else ()
    one, other = (_counted(rows, left_out) for rows in sides)
    rows = {repr(row): row for side in sides for row in (_without(one, left_out) for one in side)}
    surplus = {text: one[text] - other[text] for text in rows if one[text] != other[text]}
    found = list(paired([Unequal(rows[text], count) for text, count in surplus.items()], key))
    counts = Counter(one.differs for one in found)
    missing, extra, different = (counts[kind] for kind in (Differs.MISSING, Differs.EXTRA, Differs.DIFFERENT))
    return Verification(len(sides[1]), missing, extra, different, tuple(found[:shown]))


def _last(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the rows of a change feed that are there in the end."""
    table = table.sort_by(SEQUENCE)
    places = {repr(list(row.values())): place for place, row in enumerate(table.select(key).to_pylist())}
    last = table.take(pa.array(sorted(places.values()), pa.int64()))
    return last.filter(pc.not_equal(last[OP], "delete"))


def _rows(table: pa.Table, time: str | None, since: Instant | str | None, until: Instant | str | None) -> list[Any]:
    """Return the rows that count."""
    if time is None:
        return table.to_pylist()
    path = [time] if time in table.column_names else time.split(".")
    field_of("written", table.schema, path[0])
    column: Any = table[path[0]].combine_chunks()
    for name in path[1:]:
        column = pc.struct_field(column, name)
    micros = column.cast(pa.timestamp("us")).cast(pa.int64())
    ends = (moment_of(since, "since"), moment_of(until, "until"))
    for end, compare in zip(ends, (pc.greater_equal, pc.less), strict=True):
        if end is not None:
            kept = compare(micros, end)
            table, micros = table.filter(kept), micros.filter(kept)
    return table.to_pylist()


def _counted(rows: Sequence[Any], left_out: Collection[str]) -> Counter[str]:
    return Counter(repr(_without(row, left_out)) for row in rows)


def _without(row: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}
