"""``aggregate`` over a change feed: the aggregate of the table that the feed describes, kept current.

The first table has the rows by the feed's key, so what a change replaces is known; the second has the groups. Between
the two, what was there leaves its group and what is there joins its own, as with ``KTable.group_by`` (KIP-904).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.dsl.streams_and_tables import KGroupedTable, KTable
from millpond.processors.dsl.wiring.grouping import group_table
from millpond.processors.options.materialized import Materialized
from millpond.processors.options.records import Grouped
from millpond.processors.verbs.aggregate import NO_BITS, Groupings, Results
from millpond.processors.verbs.aggregates import AggregateCall, count
from millpond.processors.verbs.feeds.feed_rows import FeedRows, in_group
from millpond.processors.verbs.feeds.last_changes import KeptOrders, LastChanges
from millpond.processors.verbs.projections import CHANGE_TIME, ChangeColumns, Keys, Times
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.processors.verbs.verb import Projection, Verb
from millpond.stores.encoding.serdes import BYTES, Serde
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.terms import Written

ROWS: Final = "rows"
"""The store of the rows of the feed."""

GROUPS: Final = "groups"
"""The store of the aggregates."""

LAST_CHANGES: Final = "last-changes"
"""The node that chooses among changes by their order."""

MEMBERS: Final = "millpond_members"
"""The result, which nobody sees, that says how many rows a group has."""


def with_members(calls: Mapping[str, AggregateCall]) -> dict[str, AggregateCall]:
    """The calls, and behind them what says how many rows a group has."""
    return {**calls, MEMBERS: count()}


class GroupResults(Results):
    """The results of the aggregate functions without the number of rows, which is the last one."""

    @property
    def schema(self) -> Any:
        whole = super().schema
        return whole.remove(len(whole) - 1)

    def columns(self, batch: Any, first: int) -> list[Any]:
        return super().columns(batch, first)[:-1]

    def of_columns(self, columns: Any, first: int) -> list[Any]:
        return super().of_columns(columns, first)[:-1]


class Membership:
    """What a row does to its group: it joins, or leaves; a group that the last one leaves is gone. Can be pickled.

    Args:
        calls: what is computed, of which the last counts rows.
        rows: reads rows.
    """

    def __init__(self, calls: RowAggregate, rows: Serde[Any]) -> None:
        self._calls = calls
        self._rows = rows

    def join(self, group: bytes, row: bytes, state: list[Any]) -> list[Any]:
        """The state of a group with one more row."""
        return self._calls.aggregator(group, self._rows.deserialize(row), state)

    def leave(self, group: bytes, row: bytes, state: list[Any]) -> list[Any] | None:
        """The state of a group without one of its rows; None if that was the last."""
        left = self._calls.subtractor(group, self._rows.deserialize(row), state)
        return left if left[-1] else None


def feed_aggregate(
    name: str,
    rows: FeedRows,
    calls: RowAggregate,
    *,
    written: str,
    told: Mapping[str, int] = NO_BITS,
) -> Verb:
    """The verb.

    Args:
        name: its name.
        rows: its input, with the topic ``input``.
        calls: what is computed, reversible, with ``with_members``.
        written: the calls as a user writes them; rows are kept with what these take, so they never change.
        told: the bits of ``grouping_id`` that are shown as columns, by the names of these.
    """
    calls = calls.of_verb(name, rows.groups)
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    table = _table(builder, rows)
    selectors = [partial(in_group, place, rows.memberships) for place in range(rows.memberships)]
    grouped = KGroupedTable(group_table(table.handle, selectors, Grouped(BYTES, BYTES)))
    member = Membership(calls, calls.input_serde)
    kept = Materialized(GROUPS, key_serde=BYTES, value_serde=calls.state_serde, caching=True)
    groups = grouped.aggregate(calls.initializer, member.join, member.leave, kept)
    groups.to_stream(changes_only=True).to(name)
    results = GroupResults(calls, None)
    keys = Keys(rows.groups, topics=(rows.topic,))
    shown: tuple[Projection, ...] = (keys, *([Groupings(rows.groups, told)] if told else []), results)
    parts = (*shown, ChangeColumns(rows.times))
    stores = {GROUPS: (*shown, Times(CHANGE_TIME, rows.times))}
    terms = {"calls": Written(written), **({} if rows.sets is None else {"by": Written(rows.sets)})}
    rows = replace(rows, types=calls.arguments)
    return Verb(builder.build(), {rows.topic: rows}, parts, stores, follows_time=False, terms=terms)


def _table(builder: StreamsBuilder, rows: FeedRows) -> KTable:
    """The rows by the feed's key, of whose changes the last one counts."""
    kept, orders = Materialized(ROWS), f"{rows.topic}-order"
    if rows.order is None:
        return builder.table(rows.topic, materialized=kept)
    made = partial(LastChanges, KeptOrders(orders, ROWS) if rows.late else None)
    changes = builder.stream(rows.topic).process(made, name=LAST_CHANGES, keeps_key=True, value_serde=BYTES)
    table = changes.to_table(kept)
    if rows.late:
        table.handle.graph.use(LAST_CHANGES, [StoreSpec(orders, StoreKind.KEY_VALUE, BYTES, BYTES), ROWS])
    return table
