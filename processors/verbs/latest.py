"""``latest``: a change feed made a table: only what is its key's latest, and only what changes it."""

from collections.abc import Sequence

from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.verbs.projections import CHANGE_TIME, ChangeColumns, Keys, Rows, Times
from millpond.processors.verbs.sequenced import sequenced_table
from millpond.processors.verbs.verb import PackedRows, Verb
from millpond.stores.encoding.serdes import BYTES


def latest(name: str, rows: PackedRows, *, history: int, columns: Sequence[str]) -> Verb:
    """The verb.

    Args:
        name: its name.
        rows: its input, with the topic ``input``.
        history: how long deletes are remembered, and how late a row may be, in microseconds.
        columns: the columns of the result, besides those of the key.
    """
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    table = sequenced_table(builder, rows.topic, "latest", history, ordered=rows.order is not None)
    table.to_stream(changes_only=True).to(name)
    parts = (Keys.of_rows(rows), Rows(rows.rows, columns), ChangeColumns(rows.times))
    stores = {"latest": (*parts[:2], Times(CHANGE_TIME, rows.times))}
    return Verb(builder.build(), {rows.topic: rows}, parts, stores)
