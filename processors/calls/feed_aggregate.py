"""``aggregate`` over a change feed as a user calls it: its feed, and the options that it cannot have."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic

from millpond.errors import ChangeFeedError, MissingArgumentError
from millpond.processors.calls.arguments import INPUT, check_distinct, column_names, grouping_of
from millpond.processors.calls.feeds import Feed
from millpond.processors.calls.made import MadeVerb
from millpond.processors.calls.readings import Begin, Column, Read, VerbRows, begun_anew, groupings_of
from millpond.processors.calls.waiting import feed_aggregate_account
from millpond.processors.options.grouping import GROUPING_ID, By
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.feeds.feed_aggregate import feed_aggregate
from millpond.processors.verbs.feeds.feed_rows import FeedRows
from millpond.processors.verbs.feeds.group_aggregate import MEMBERS, GroupAggregate
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.typed.expiry import Expired


@dataclass(frozen=True)
class Changes(Generic[Column]):
    """The replacement of rows in a change feed.

    Attributes:
        key: the columns by which rows replace each other.
        op: the column that says which rows are deletes.
        order: the column that decides which of several rows counts; None if their times do.
        by_order: whether the order decides among rows of one time, too.
        late: whether a change may come in a later micro-batch than one of its key that counts more; changes of a verb
            never do.
    """

    key: Sequence[str]
    op: Column
    order: Column | None = None
    by_order: bool = False
    late: bool = False


def changes_in(
    name: str,
    rows: VerbRows[Column, Read],
    *,
    key: str | Sequence[str] | None,
    op: Column | None,
    order: Column | None,
) -> Changes[Column] | None:
    """Return how the rows replace each other; None if they stay.

    Args:
        name: the verb's name, for messages.
        rows: the rows.
        key, op, order: as the user gave them.

    Raises:
        ConfigurationError: there is a key and nothing says which rows are deletes, or the other way round, or a feed
            has lost the columns by which its rows replace each other.
    """
    found, feed = rows.operations(op), rows.told
    if found is None:
        if key is not None:
            raise MissingArgumentError(
                f"the verb {name!r} is given key={key!r}, by which rows of a change feed replace each other, and "
                "nothing says which of them are deletes; give op as well, the column with 'upsert' and 'delete', or "
                "leave key out"
            )
        return None
    if feed is not None and (op is None or (isinstance(op, str) and op == feed.op)):
        return _of_verb(name, rows, feed, key, found, order)
    if key is None:
        raise MissingArgumentError(
            f"the verb {name!r} is given op, so its rows are changes, and nothing says which of them replace each "
            "other; give key='id', or a list of columns"
        )
    chosen = order is not None
    return Changes(column_names(key, "key"), found, order, by_order=chosen, late=chosen)


def _of_verb(
    name: str,
    rows: VerbRows[Column, Read],
    feed: Feed,
    key: str | Sequence[str] | None,
    op: Column,
    order: Column | None,
) -> Changes[Column]:
    """Return how the rows of a verb's feed replace each other, by the notes on its columns.

    Raises:
        ConfigurationError: a noted column is missing, or the user gave another key or order.
    """
    if key is None and feed.row is None:
        raise ChangeFeedError(
            f"the rows of the verb {name!r} are a change feed, and of the columns by which they replace each other, "
            f"{_among(feed.keys)} there; keep all of them, or give key=[...], the columns that tell rows apart. To "
            f"count its changes as rows, take {feed.op!r} away: {rows.as_rows(op)}"
        )
    if key is not None and feed.row is not None and set(column_names(key, "key")) != set(feed.row):
        raise ChangeFeedError(
            f"the verb {name!r} is given key={key!r}, and the rows of its feed replace each other by "
            f"{', '.join(sorted(feed.row))}, and a delete has only those columns; leave key out"
        )
    by_sequence = feed.sequence is not None and (order is None or rows.is_column(order, feed.sequence))
    if order is not None and feed.sequence is not None and not by_sequence:
        raise ChangeFeedError(
            f"the verb {name!r} is given order={order!r}, and the changes of its feed go by {feed.sequence!r}; leave "
            "order out"
        )
    if order is None and feed.sequence is None:
        raise ChangeFeedError(
            f"the rows of the verb {name!r} are a change feed without its sequence, which says which change of a key "
            "counts; keep that column, or give order"
        )
    decides = rows.column(feed.sequence) if by_sequence and feed.sequence is not None else order
    replaced = sorted(feed.row or ()) if key is None else column_names(key, "key")
    return Changes(replaced, op, decides, by_order=order is not None, late=not by_sequence)


def _among(names: Collection[str]) -> str:
    """Return the words for the columns that are there, in the sentence that others are missing."""
    return f"only {', '.join(sorted(names))} {'is' if len(names) == 1 else 'are'}" if names else "none are"


def make_feed_aggregate(
    name: str,
    rows: VerbRows[Column, Read],
    calls: Mapping[str, AggregateCall],
    changes: Changes[Column],
    *,
    by: By,
    time: Column,
    begin: Begin[Read] = begun_anew,
    binding: Callable[[Callable[..., RowAggregate]], RowAggregate],
) -> MadeVerb[Read]:
    """Return the verb.

    Raises:
        ConfigurationError: a column is absent or of a type that does not do.
    """
    keys, grouping = grouping_of(by)
    added = [] if grouping is None else [GROUPING_ID]
    check_distinct([*keys, *added, *calls, MEMBERS], changes=True, remedy=rows.remedy)
    told, calls = groupings_of(calls, grouping)
    read = rows.regrouped(changes.key, keys, time, calls, op=changes.op, order=changes.order)
    late = rows.time(time).bound
    packing = begin(name, [read])
    types = {column.name: column.type for column in read.schema(read.values)}
    bound = binding(partial(GroupAggregate, calls, types, ordered=changes.by_order))
    assert isinstance(bound, GroupAggregate)
    key = packing.foreign(read)
    columns = KeyCodec(read.key_schema([])) if key is None else key
    packed = FeedRows(
        INPUT,
        packing.keys(read),
        NullKeys.EQUAL,
        read.values,
        order=packing.order(read),
        times=packing.times(read),
        calls=bound,
        groups=columns if grouping is None else KeyCodec(grouping.packed(columns.schema)),
        sets=grouping,
        by_order=changes.by_order,
        late=changes.late,
    )
    verb = feed_aggregate(name, packed, told=told)
    return MadeVerb(verb, {INPUT: read}, feed_aggregate_account(name, late, orders=changes.late))


def check_feed_options(name: str, *, window: object, until: object, emit: object, ttl: object, expired: object) -> None:
    """Refuse options that have no meaning for rows that are replaced and deleted.

    Raises:
        ConfigurationError: there is one.
    """
    if window is not None:
        raise ChangeFeedError(
            f"the verb {name!r} has a window, but its rows are a change feed, whose rows are replaced and deleted for "
            "ever: no window would be closed; add a column with the window of each row, such as a day, and group by "
            "it: by=[..., 'day']"
        )
    if until is not None:
        raise ChangeFeedError(
            f"the verb {name!r} has until={until!r}, but its rows are a change feed, whose results are of no windows; "
            "leave until out"
        )
    if isinstance(emit, str) and emit == "final":
        raise ChangeFeedError(
            f"the verb {name!r} has emit='final', but its rows are a change feed, whose rows are replaced and deleted "
            "for ever: no result is final; leave emit out"
        )
    if ttl is None and isinstance(expired, str) and expired == Expired.DELETE.value:
        raise ChangeFeedError(
            f"the verb {name!r} has expired={expired!r}, but its rows are a change feed, whose groups do not expire; "
            "leave it out, and give it with a ttl to the verb that makes the feed"
        )
    if ttl is not None:
        raise ChangeFeedError(
            f"the verb {name!r} has a ttl, but its rows are a change feed, and those that leave a group are taken out "
            "of it, however old they are; give the ttl to the verb that makes the feed, with expired='delete'"
        )
