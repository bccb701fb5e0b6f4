"""``multi_join``: many change feeds joined by one key, in one operator; a change feed comes out."""

from collections.abc import Sequence
from functools import partial

from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.dsl.streams_and_tables import KStream
from millpond.processors.options.joins import JoinType
from millpond.processors.tables.multi_join import ChangedKeys, MultiJoin
from millpond.processors.verbs.joins.multi_match import MultiMatching
from millpond.processors.verbs.joins.table_join import side_table
from millpond.processors.verbs.projections import CHANGE_TIME, ChangeColumns, Keys, Rows, RowsOfSides, Times
from millpond.processors.verbs.verb import PackedRows, Verb, null_safety
from millpond.stores.encoding.serdes import BYTES, INT64
from millpond.stores.evolution.verbs.verb_kinds import TABLES
from millpond.stores.typed.expiry import Expired
from millpond.stores.typed.terms import Term, Written


def multi_join(
    name: str,
    tables: Sequence[PackedRows],
    types: Sequence[JoinType],
    *,
    history: int | None,
    columns: Sequence[Sequence[str]],
    ttl: int | None = None,
    expired: Expired = Expired.SILENT,
    null_safe: bool = False,
) -> Verb:
    """Return the verb.

    Args:
        name: its name.
        tables: its inputs, each with a topic of its own, all with times of one type.
        types: the type of the join of each but the first with those before it: inner, left or outer.
        history: for versioned tables, how long versions and deletes are remembered, in microseconds; None to take
            changes in the order in which they arrive.
        columns: for each table, the columns of the result besides the key's.
        ttl: how long a row of a table lives after its time, in microseconds; None for ever.
        expired: the treatment of expired rows.
        null_safe: whether null keys are equal.
    """
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    inputs = {rows.topic: rows for rows in tables}
    shown = dict(zip(inputs, columns, strict=True))
    first, *others = [_changes(builder, place, rows, history, ttl, expired) for place, rows in enumerate(tables)]
    joined = first.merge(*others)
    made = partial(MultiJoin, list(inputs), types)
    joined.process(made, stores=list(inputs), keeps_key=True, value_serde=BYTES).to(name)
    keys, times = Keys.of_rows(*tables) if JoinType.OUTER in types else Keys.of_rows(tables[0]), tables[0].times
    rows_of = RowsOfSides([(inputs[topic].rows, names) for topic, names in shown.items()])
    return Verb(
        builder.build(),
        inputs,
        (keys, rows_of, ChangeColumns(times)),
        {
            topic: (Keys.of_rows(rows), Rows(rows.rows, shown[topic]), Times(CHANGE_TIME, times))
            for topic, rows in inputs.items()
        },
        follows_time=history is not None or ttl is not None,
        terms=_terms(list(inputs), types, null_safe),
        matching=MultiMatching(inputs, shown, types),
    )


def _terms(tables: Sequence[str], types: Sequence[JoinType], null_safe: bool) -> dict[str, Term]:
    """Return the terms of the stores' rows: with other tables, or other joins, results that are out would be wrong."""
    return {TABLES: Written(tables), "how": how_written(tables, types), **null_safety(null_safe)}


def how_written(tables: Sequence[str], types: Sequence[JoinType]) -> Written:
    """Return how tables of these names are joined, as a user writes it.

    >>> how_written(["orders", "payments", "parcels"], [JoinType.INNER, JoinType.LEFT])
    {'payments': 'inner', 'parcels': 'left'}
    >>> how_written(["orders", "payments", "parcels"], [JoinType.LEFT, JoinType.LEFT])
    'left'
    """
    values = [one.value for one in types]
    return Written(repr(values[0] if len(set(values)) == 1 else dict(zip(tables[1:], values, strict=True))))


def _changes(
    builder: StreamsBuilder, number: int, rows: PackedRows, history: int | None, ttl: int | None, expired: Expired
) -> KStream:
    """Return which keys of a side change, and whether they had a row before."""
    table = side_table(builder, rows, history, ttl, expired)
    table.handle.send_olds(force=True)
    made = partial(ChangedKeys, number, history is not None)
    return table.to_stream().process(made, keeps_key=True, value_serde=INT64)
