"""``aggregate`` over a change feed: the aggregate of the table that the feed describes, kept current.

The first table has the rows by the feed's key, so the row that a change replaces is known; the second has the groups.
Between the two, an old row leaves its group and a new row joins its own, as with ``KTable.group_by`` (KIP-904).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.dsl.streams_and_tables import KTable
from millpond.processors.dsl.wiring.grouping import group_table
from millpond.processors.options.materialized import Materialized
from millpond.processors.options.records import Grouped
from millpond.processors.verbs.aggregate import NO_BITS, Groupings, Results
from millpond.processors.verbs.feeds.feed_groups import FeedGroups
from millpond.processors.verbs.feeds.feed_rows import FeedRows, InGroup
from millpond.processors.verbs.feeds.group_values import group_values_spec
from millpond.processors.verbs.feeds.last_changes import KeptOrders, LastChanges
from millpond.processors.verbs.feeds.shown_rows import ShownRows
from millpond.processors.verbs.projections import CHANGE_TIME, ChangeColumns, Keys, Times
from millpond.processors.verbs.verb import Projection, Verb
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.terms import Written

ROWS: Final = "rows"
"""The store of the rows of the feed."""

GROUPS: Final = "groups"
"""The store of the aggregates."""

LAST_CHANGES: Final = "last-changes"
"""The node that chooses among changes by their order."""

VALUES: Final = "values"
"""The store of the values of groups, as far as functions need them."""


class GroupResults(Results):
    """The results of the aggregate functions without the number of rows, which is the first one."""

    @property
    def schema(self) -> Any:
        return super().schema.remove(0)

    def columns(self, batch: Any, first: int) -> list[Any]:
        return super().columns(batch, first)[1:]

    def of_columns(self, columns: Any, first: int) -> list[Any]:
        return super().of_columns(columns, first)[1:]


def feed_aggregate(name: str, rows: FeedRows, *, told: Mapping[str, int] = NO_BITS) -> Verb:
    """Return the verb.

    Args:
        name: its name.
        rows: its input, with the topic ``input``, and its calls.
        told: the bits of ``grouping_id`` that are shown as columns, by the names of these.
    """
    calls = rows.calls.of_verb(name, rows.groups)
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    table = _table(builder, rows)
    selectors = [InGroup(place, rows.memberships) for place in range(rows.memberships)]
    grouping = group_table(table.handle, selectors, Grouped(BYTES, BYTES))
    kept = Materialized(GROUPS, key_serde=BYTES, value_serde=calls.state_serde)
    groups = KTable(grouping.folded(partial(FeedGroups, calls, VALUES), kept, group_values_spec(VALUES)))
    groups.to_stream(changes_only=True).to(name)
    results = GroupResults(calls, None)
    keys = Keys(rows.groups, topics=(rows.topic,))
    shown: tuple[Projection, ...] = (keys, *([Groupings(rows.groups, told)] if told else []), results)
    parts = (*shown, ChangeColumns(rows.times))
    times = Times(CHANGE_TIME, rows.times)
    kept_rows = (Keys.of_rows(rows), ShownRows(rows.groups, calls, rows.times), times)
    stores = {ROWS: kept_rows, GROUPS: (*shown, times)}
    terms = {} if rows.sets is None else {"by": Written(rows.sets)}
    return Verb(builder.build(), {rows.topic: rows}, parts, stores, follows_time=False, terms=terms)


def _table(builder: StreamsBuilder, rows: FeedRows) -> KTable:
    """Return the rows by the feed's key, of whose changes the last one counts."""
    kept, orders = Materialized(ROWS), f"{rows.topic}-order"
    if rows.order is None:
        return builder.table(rows.topic, materialized=kept)
    made = partial(LastChanges, KeptOrders(orders, ROWS) if rows.late else None)
    changes = builder.stream(rows.topic).process(made, name=LAST_CHANGES, keeps_key=True, value_serde=BYTES)
    table = changes.to_table(kept)
    if rows.late:
        table.handle.graph.use(LAST_CHANGES, [StoreSpec(orders, StoreKind.KEY_VALUE, BYTES, BYTES), ROWS])
    return table
