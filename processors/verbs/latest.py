"""``latest``: the table of a change feed: only rows that are their key's latest, and only those that change it."""

from collections.abc import Sequence

from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.verbs.projections import CHANGE_TIME, ChangeColumns, Keys, Rows, Times
from millpond.processors.verbs.sequenced import sequenced_table
from millpond.processors.verbs.verb import PackedRows, Verb
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.typed.expiry import Expired


def latest(
    name: str,
    rows: PackedRows,
    *,
    history: int,
    columns: Sequence[str],
    ttl: int | None = None,
    expired: Expired = Expired.SILENT,
) -> Verb:
    """Return the verb.

    Args:
        name: its name.
        rows: its input, with the topic ``input``.
        history: how long deletes are remembered, and how late a row may be, in microseconds.
        columns: the columns of the result, besides the key's.
        ttl: how long a row lives after its time, in microseconds; None for ever.
        expired: the treatment of expired rows.
    """
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    ordered = rows.order is not None
    table = sequenced_table(
        builder, rows.topic, "latest", history, ordered=ordered, in_turn=rows.in_turn, ttl=ttl, expired=expired
    )
    table.to_stream(changes_only=True).to(name)
    parts = (Keys.of_rows(rows), Rows(rows.rows, columns), ChangeColumns(rows.times))
    stores = {"latest": (*parts[:2], Times(CHANGE_TIME, rows.times))}
    return Verb(builder.build(), {rows.topic: rows}, parts, stores)
