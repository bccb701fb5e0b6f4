"""Each verb answers the same, however its rows are cut into micro-batches and files, as long as none is too late."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.processors import CumulativeWindows, SessionWindows, SlidingWindows, TimeWindows
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.apply import make_apply
from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.stream_join import make_stream_join
from millpond.processors.calls.joins.table_join import make_table_join
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.options.joins import (
    ASOF_JOINS,
    FOREIGN_KEY_JOINS,
    TABLE_JOINS,
    AsofDirection,
    JoinType,
    Side,
    Unfit,
)
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.joins.stream_join import BOUNDS, OwnBounds
from tests.metamorphic import oracle
from tests.metamorphic.applied import results_of
from tests.metamorphic.checking import (
    EXAMPLES,
    KEYS,
    LENGTHS,
    NULLABLE,
    TWO,
    answers,
    bag,
    combined,
    event,
    histories,
    own,
    rows_of,
    schema,
    table,
)
from tests.metamorphic.histories import FAR, SECOND, Chain, Event, Way, current
from tests.metamorphic.oracle import Row
from tests.metamorphic.rules import IDLE, RESULTS, SOON, Totals


@pytest.fixture(autouse=True, scope="module")
def _combined() -> Iterator[None]:
    """Few rows are combined as many are."""
    with combined(most_new=1.0):
        yield


CALLS = {
    "combined": {"n": aggregates.count(), "s": aggregates.sum("av")},
    "by time": {
        "n": aggregates.count(),
        "s": aggregates.sum("av"),
        "f": aggregates.first("av"),
        "l": aggregates.last("av"),
        "c": aggregates.collect("av"),
    },
}


def aggregated(rows: Sequence[Row]) -> dict[str, Any]:
    values = [row["av"] for row in rows]
    present = [value for value in values if value is not None]
    return {
        "n": len(values),
        "s": sum(present) if present else None,
        "f": values[0],
        "l": values[-1],
        "c": tuple(present),
    }


def check_aggregates(
    events: Sequence[Event], ways: Sequence[Way], by: Sequence[str], calls: str, delay: int, window: Any = None,
    final: bool = False, cut: oracle.Cutting | None = None, shown: Callable[[int], int] = int,
    within: Any = oracle.holds_end,
) -> None:  # fmt: skip
    source = schema("a")
    made = make_aggregate("out", Rows.of("a", source), CALLS[calls], by=by, time="at", window=window, final=final)
    if not by:
        events = list({event.row["at"]: event for event in events}.values())
    rows = [{**row, "k": row["k"] if by else None} for row in own(events, "a")]
    groups: Mapping[Any, Sequence[Row]]
    if cut is None:
        groups = {
            (key,): sorted((row for row in rows if row["k"] == key), key=lambda row: int(row["at"]))
            for key in {row["k"] for row in rows}
        }
    else:
        windows = oracle.by_window(rows, "k", "at", cut, within)
        groups = {(key, (start, shown(end))): rows for (key, (start, end)), rows in windows.items()}
    groups = {key if by else key[1:]: rows for key, rows in groups.items()}
    names = [*by, *([] if window is None else ["window"])]
    expected = {
        key: {
            **dict(zip(names, key, strict=True)),
            **{name: value for name, value in aggregated(rows).items() if name in CALLS[calls]},
            **({} if final else {"change_time": max(row["at"] for row in rows)}),
        }
        for key, rows in groups.items()
    }
    for answer in answers(Chain([made], {"a": source}, {"a": "at"}), events, {"a": delay}, ways):
        # Those that close a history are rows of the only key, too.
        found = [row for row in answer.rows if (row["window"][1] if "window" in row else row["change_time"]) < FAR]
        if final:
            assert bag(found) == bag(expected.values())
        else:
            assert table(current(found, names)) == table(expected)


SOME = rows_of("a", NULLABLE, 14)
WHICH = st.sampled_from(sorted(CALLS))
BY = st.sampled_from([["k"], []])


@histories()
@given(SOME, TWO, BY, WHICH)
def test_aggregates_by_key(events: list[Event], ways: list[Way], by: list[str], calls: str) -> None:
    check_aggregates(events, ways, by, calls, 40)


@histories()
@given(SOME, TWO, BY, WHICH, LENGTHS, st.booleans())
def test_aggregates_by_tumbling_window(
    events: list[Event], ways: list[Way], by: list[str], calls: str, grace: int, final: bool
) -> None:
    window, cut = TimeWindows(7_000, grace=grace * 1_000), oracle.tumbling(7 * SECOND)
    check_aggregates(events, ways, by, calls, grace, window, final, cut, within=oracle.holds)


@histories()
@given(SOME, TWO, BY, WHICH, LENGTHS, st.booleans())
def test_aggregates_by_hopping_window(
    events: list[Event], ways: list[Way], by: list[str], calls: str, grace: int, final: bool
) -> None:
    window, cut = TimeWindows(10_000, advance=3_000, grace=grace * 1_000), oracle.tumbling(10 * SECOND, 3 * SECOND)
    check_aggregates(events, ways, by, calls, grace, window, final, cut, within=oracle.holds)


@histories()
@given(SOME, TWO, BY, WHICH, LENGTHS, st.booleans())
def test_aggregates_by_cumulative_window(
    events: list[Event], ways: list[Way], by: list[str], calls: str, grace: int, final: bool
) -> None:
    window = CumulativeWindows(12_000, 3_000, grace=grace * 1_000, offset=7_000)
    cut = oracle.cumulative(12 * SECOND, 3 * SECOND, 7 * SECOND)
    check_aggregates(events, ways, by, calls, grace, window, final, cut, within=oracle.holds)


@histories()
@given(SOME, TWO, BY, WHICH, LENGTHS, st.booleans())
def test_aggregates_by_sliding_window(
    events: list[Event], ways: list[Way], by: list[str], calls: str, grace: int, final: bool
) -> None:
    window, cut = SlidingWindows(5_000, grace=grace * 1_000), oracle.sliding(5 * SECOND)
    check_aggregates(events, ways, by, calls, grace, window, final, cut)


@histories()
@given(SOME, TWO, BY, WHICH, LENGTHS, st.booleans())
def test_aggregates_by_session(
    events: list[Event], ways: list[Way], by: list[str], calls: str, grace: int, final: bool
) -> None:
    window, cut = SessionWindows(4_000, grace=grace * 1_000), oracle.sessions(4 * SECOND)
    check_aggregates(events, ways, by, calls, grace, window, final, cut, shown=lambda end: end + 4 * SECOND)


@histories()
@given(SOME, TWO, BY, WHICH, LENGTHS, st.booleans())
def test_aggregates_by_session_of_a_largest_length(
    events: list[Event], ways: list[Way], by: list[str], calls: str, grace: int, final: bool
) -> None:
    gap, length, offset = 4 * SECOND, 10 * SECOND, 3 * SECOND

    def shown(end: int) -> int:
        return min(end + gap, ((end - offset) // length + 1) * length + offset)

    window = SessionWindows(4_000, grace=grace * 1_000, max_length=10_000, offset=3_000)
    cut = oracle.cut_sessions(gap, length, offset)
    check_aggregates(events, ways, by, calls, grace, window, final, cut, shown=shown)


@histories()
@given(rows_of("a", NULLABLE, 14, op=True), TWO, LENGTHS, st.booleans())
def test_latest(events: list[Event], ways: list[Way], history: int, deletes: bool) -> None:
    source, op = schema("a", op=True), "ao" if deletes else None
    rows = Rows.of("a", source)
    made = make_latest("out", rows, key="k", time="at", history=history * SECOND, op=op)
    newest = oracle.newest(own(events, "a"), "k", "at", op)
    expected = {(key,): {**row, "change_time": row["at"]} for key, row in newest.items()}
    for answer in answers(Chain([made], {"a": source}, {"a": "at"}), events, {"a": history}, ways):
        assert table(current(answer.rows, ["k"])) == table(expected, *([] if op is None else [op]))


def numbered(source: str, keys: Sequence[Any]) -> st.SearchStrategy[list[Event]]:
    """Return rows, of which many have one key and time, in any order of the numbers in their column ``id``."""
    one = st.tuples(st.sampled_from(keys), st.integers(0, 6), st.integers(0, 9), st.integers(0, 1_000))
    listed = st.lists(one, max_size=14, unique_by=lambda row: row[3])
    return listed.map(lambda some: [_numbered(event(source, *row[:3], "", with_op=False), row[3]) for row in some])


def _numbered(one: Event, number: int) -> Event:
    return replace(one, row={"id": number, **one.row})


def ordered(events: Iterable[Event], source: str) -> list[Row]:
    return sorted(own(events, source), key=lambda row: (int(row[f"{source}t"]), int(row["id"])))


@histories()
@given(numbered("a", NULLABLE), TWO, LENGTHS)
def test_latest_with_an_order(events: list[Event], ways: list[Way], history: int) -> None:
    source = schema("a", id_=True)
    made = make_latest("out", Rows.of("a", source), key="k", time="at", history=history * SECOND, order="id")
    newest = oracle.newest(ordered(events, "a"), "k", "at")
    expected = {(key,): {**row, "change_time": row["at"]} for key, row in newest.items()}
    for answer in answers(Chain([made], {"a": source}, {"a": "at"}), events, {"a": history}, ways):
        assert table(current(answer.rows, ["k"])) == table(expected)


@histories()
@given(numbered("a", KEYS), numbered("b", KEYS), TWO, LENGTHS)
def test_asof_join_with_an_order(a: list[Event], b: list[Event], ways: list[Way], late: int) -> None:
    """Right rows of the time of a left row may come after it, so it has to wait for them."""
    schemas = {"b": schema("b", id_=True), "a": schema("a")}
    left = [replace(one, row={name: one.row[name] for name in schemas["a"].names}) for one in a]
    made = make_asof_join(
        "out", Rows.of("a", schemas["a"]), Rows.of("b", schemas["b"]), on="k", times=("at", "bt"),
        history=(late + 1) * SECOND, how=JoinType.LEFT, grace=(late + 1) * SECOND, right_order="id",
    )  # fmt: skip
    expected = bag(oracle.asof(own(left, "a"), ordered(b, "b"), "left", ("at", "bt")))
    chain = Chain([made], schemas, {"b": "bt", "a": "at"})
    for answer in answers(chain, [*left, *b], {"b": late, "a": late}, ways):
        assert bag(answer.rows) == expected


class Matches(NamedTuple):
    """The rows that match, and what comes out."""

    tolerance: int | None
    how: JoinType
    exact: bool
    filled: bool
    direction: AsofDirection
    unfit: Unfit | None = None

    @property
    def chosen(self) -> Unfit | None:
        """Return what a left row meets whose right row is too great, if there is such a condition."""
        return Unfit.MISS if self.unfit is not None and self.tolerance is None else self.unfit


def is_less(both: pa.Table) -> Any:
    """Return whether the right value is less, or as great; null is neither."""
    return pc.less_equal(both["bv"], both["av"])


def is_less_of(left: Row, right: Row) -> bool:
    return left["av"] is not None and right["bv"] is not None and bool(right["bv"] <= left["av"])


UNFIT = st.sampled_from([None, None, *Unfit])

MATCHES = st.builds(
    Matches,
    st.sampled_from([None, None, 0, 2 * SECOND, 10 * SECOND]),
    st.sampled_from(ASOF_JOINS),
    st.booleans(),
    st.booleans(),
    st.just(AsofDirection.BACKWARD),
    UNFIT,
)
AHEAD = st.builds(
    Matches,
    st.sampled_from([0, SECOND, 4 * SECOND, 20 * SECOND]),
    st.sampled_from(ASOF_JOINS),
    st.booleans(),
    st.booleans(),
    st.sampled_from([AsofDirection.FORWARD, AsofDirection.NEAREST]),
    UNFIT,
)
PAIRS = st.tuples(rows_of("a", NULLABLE), rows_of("b", NULLABLE, op=True)).map(lambda both: [*both[0], *both[1]])


@histories()
@given(PAIRS, TWO, LENGTHS, MATCHES, st.booleans())
def test_asof_join(events: list[Event], ways: list[Way], late: int, matches: Matches, deletes: bool) -> None:
    """Left rows are joined at once, and may be as late as the history reaches."""
    _check_asof(events, ways, (0, late), None, late, matches, deletes)


@histories()
@given(PAIRS, TWO, st.sampled_from([1, 3, 8]), LENGTHS, MATCHES, st.booleans())
def test_asof_join_with_grace(
    events: list[Event], ways: list[Way], grace: int, late: int, matches: Matches, deletes: bool
) -> None:
    """Right rows may be less late than the grace."""
    _check_asof(events, ways, (grace - 1, late), grace, max(grace, late), matches, deletes)


@histories()
@given(PAIRS, TWO, st.sampled_from([1, 3, 8]), LENGTHS, AHEAD, st.booleans())
def test_asof_join_ahead(
    events: list[Event], ways: list[Way], grace: int, late: int, matches: Matches, deletes: bool
) -> None:
    """Right rows may be less late than the grace, and left rows come out when no match can come any more."""
    tolerance = (matches.tolerance or 0) // SECOND
    _check_asof(events, ways, (grace - 1, late), grace, max(grace + tolerance, late), matches, deletes)


def _check_asof(
    events: list[Event], ways: list[Way], delays: tuple[int, int], grace: int | None, history: int,
    matches: Matches, deletes: bool,
) -> None:  # fmt: skip
    schemas, op = {"b": schema("b", op=True), "a": schema("a")}, "bo" if deletes else None
    how = matches.how.value
    default = {"bv": -1} if matches.filled and how == "left" else {}
    made = make_asof_join(
        "out",
        Rows.of("a", schemas["a"]),
        Rows.of("b", schemas["b"]),
        on="k",
        times=("at", "bt"),
        history=history * SECOND,
        how=matches.how,
        grace=None if grace is None else grace * SECOND,
        tolerance=matches.tolerance,
        exact=matches.exact,
        direction=matches.direction,
        where=None if matches.chosen is None else lambda columns: is_less,
        unfit=matches.chosen or Unfit.MISS,
        default={name: pa.scalar(value, schemas["b"].field(name).type) for name, value in default.items()},
        right_op=op,
    )
    found = oracle.asof(
        own(events, "a"), own(events, "b"), how, ("at", "bt"), op, matches.tolerance, matches.exact, default,
        matches.direction.value, None if matches.chosen is None else is_less_of, matches.chosen is Unfit.NEXT,
    )  # fmt: skip
    expected = bag({name: row[name] for name in row if name != op} for row in found)
    chain = Chain([made], schemas, {"b": "bt", "a": "at"})
    for answer in answers(chain, events, dict(zip(("b", "a"), delays, strict=True)), ways):
        assert bag(answer.rows) == expected


STREAMS = st.tuples(rows_of("a", NULLABLE), rows_of("b", NULLABLE)).map(lambda both: [*both[0], *both[1]])
REACHES = st.sampled_from([(0, 0), (3, 3), (2, 7), (10, 0), (0, 5), (10, -4), (-3, 9), (6, -6)])


@histories(2 * EXAMPLES)
@given(STREAMS, TWO, REACHES, LENGTHS, st.sampled_from(JoinType))
def test_stream_join(events: list[Event], ways: list[Way], reach: tuple[int, int], grace: int, how: JoinType) -> None:
    schemas = {"b": schema("b"), "a": schema("a")}
    before, after = reach[0] * SECOND, reach[1] * SECOND
    made = make_stream_join(
        "out",
        Rows.of("a", schemas["a"]),
        Rows.of("b", schemas["b"]),
        on="k",
        times=("at", "bt"),
        before=before,
        after=after,
        grace=grace * SECOND,
        how=how,
    )
    found = oracle.near(own(events, "a"), own(events, "b"), how.value, ("at", "bt"), (before, after))
    expected = bag(found)
    for answer in answers(Chain([made], schemas, {"b": "bt", "a": "at"}), events, {"b": grace, "a": grace}, ways):
        assert bag(answer.rows) == expected


OWN = st.sampled_from([None, -4, 0, 1, 3, 7])


@st.composite
def bounded_streams(draw: st.DrawFn) -> list[Event]:
    """Draw left rows with bounds, some with the key and time of others, and right rows."""
    lefts = [*draw(rows_of("a", NULLABLE)), *draw(rows_of("a", NULLABLE))]
    drawn = [{hidden: draw(OWN.map(in_seconds)) for hidden in BOUNDS.values()} for _ in lefts]
    bounded = [replace(one, row={**one.row, **bounds}) for one, bounds in zip(lefts, drawn, strict=True)]
    return [*bounded, *draw(rows_of("b", NULLABLE))]


def in_seconds(bound: int | None) -> int | None:
    return None if bound is None else bound * SECOND


@histories(3 * EXAMPLES)
@given(bounded_streams(), TWO, LENGTHS, st.sampled_from(JoinType), st.booleans())
def test_a_stream_join_with_bounds_of_each_left_row(
    events: list[Event], ways: list[Way], grace: int, how: JoinType, null_safe: bool
) -> None:
    left = schema("a")
    for hidden in BOUNDS.values():
        left = left.append(pa.field(hidden, pa.int64()))
    schemas = {"b": schema("b"), "a": left}
    made = make_stream_join(
        "out",
        Rows.of("a", left),
        Rows.of("b", schemas["b"]),
        on="k",
        times=("at", "bt"),
        before=7 * SECOND,
        after=7 * SECOND,
        grace=grace * SECOND,
        how=how,
        bounds=OwnBounds(7 * SECOND, [*BOUNDS]),
        null_safe=null_safe,
    )
    lefts, rights = own(events, "a"), own(events, "b")
    met: set[int] = set()
    expected: list[Row] = []
    for one in lefts:
        bounds = [one[hidden] for hidden in BOUNDS.values()]
        found = [
            other
            for other in rights
            if one["k"] == other["k"] and (null_safe or one["k"] is not None)
            if None not in bounds and -bounds[0] <= other["bt"] - one["at"] <= bounds[1]
        ]
        met.update(map(id, found))
        shown = {name: value for name, value in one.items() if name not in BOUNDS.values()}
        if how.shows_right:
            expected += [{**other, **shown} for other in found]
        if (how is JoinType.SEMI and found) or (how.keeps(Side.LEFT) and not found):
            expected.append(shown)
    if how.keeps(Side.RIGHT):
        expected += [other for other in rights if id(other) not in met]
    for answer in answers(Chain([made], schemas, {"b": "bt", "a": "at"}), events, {"b": grace, "a": grace}, ways):
        assert bag(answer.rows) == bag(expected)


TABLES = st.tuples(rows_of("a", KEYS, op=True), rows_of("b", KEYS, op=True)).map(lambda both: [*both[0], *both[1]])
WITH_NULL = st.tuples(rows_of("a", NULLABLE, op=True), rows_of("b", NULLABLE, op=True))


@histories()
@given(WITH_NULL.map(lambda both: [*both[0], *both[1]]), TWO, st.none() | LENGTHS, st.sampled_from(TABLE_JOINS))
def test_table_join(events: list[Event], ways: list[Way], history: int | None, how: JoinType) -> None:
    """Without a history, changes come in order. Of an outer join, both sides have a row whose key is null."""
    if how is JoinType.OUTER:
        events = [one for one in events if one.source == "a" or one.row["k"] is not None]
    schemas = {"a": schema("a", op=True), "b": schema("b", op=True)}
    made = make_table_join(
        "out",
        Rows.of("a", schemas["a"]),
        Rows.of("b", schemas["b"]),
        on="k",
        times=("at", "bt"),
        ops=("ao", "bo"),
        how=how,
        history=None if history is None else history * SECOND,
    )
    tables = [oracle.newest(own(events, side), "k", f"{side}t", f"{side}o") for side in "ab"]
    expected = {(key,): row for key, row in oracle.joined_tables(tables[0], tables[1], how.value).items()}
    delays = dict.fromkeys("ab", history or 0)
    for answer in answers(Chain([made], schemas, {"b": "bt", "a": "at"}), events, delays, ways):
        assert table(current(answer.rows, ["k"]), "change_time") == table(expected, "ao", "bo")


def with_ids(events: Sequence[Event]) -> list[Event]:
    """Return left rows whose key is a number, and of which some have a foreign key."""
    ids = {"a": 1, "b": 2, "c": 3, "": 4}
    found = []
    for number, one in enumerate(events):
        if one.source == "a":
            foreign = None if number % 5 == 0 else KEYS[number % 4]
            one = Event("a", one.at, {**one.row, "id": ids[one.row["k"]], "k": foreign})
        found.append(one)
    return found


NAMING = st.tuples(rows_of("a", KEYS, op=True), rows_of("b", NULLABLE, op=True)).map(lambda both: [*both[0], *both[1]])


def by_foreign_key(how: JoinType, history: int | None, left_key: str | list[str]) -> tuple[Made, dict[str, pa.Schema]]:
    """Return the join of rows with the one that they name in ``k``, and the columns of both sides."""
    schemas = {"a": schema("a", op=True, id_=True), "b": schema("b", op=True)}
    made = make_table_join(
        "out",
        Rows.of("a", schemas["a"]),
        Rows.of("b", schemas["b"]),
        on="k",
        times=("at", "bt"),
        ops=("ao", "bo"),
        left_key=left_key,
        how=how,
        history=None if history is None else history * SECOND,
    )
    return made, schemas


@histories(2 * EXAMPLES)
@given(NAMING.map(with_ids), TWO, st.none() | LENGTHS, st.sampled_from(FOREIGN_KEY_JOINS))
def test_table_join_by_foreign_key(events: list[Event], ways: list[Way], history: int | None, how: JoinType) -> None:
    """A right row that no left row names is alone in a right or an outer join, as long as none does."""
    made, schemas = by_foreign_key(how, history, "id")
    one, other = oracle.newest(own(events, "a"), "id", "at", "ao"), oracle.newest(own(events, "b"), "k", "bt", "bo")
    key = ["id", "k"] if how.keeps(Side.RIGHT) else ["id"]
    pairs = oracle.joined_by_foreign_key(one, other, how.value, "k")
    expected = {names[: len(key)]: row for names, row in pairs.items()}
    delays = dict.fromkeys("ab", history or 0)
    for answer in answers(Chain([made], schemas, {"b": "bt", "a": "at"}), events, delays, ways):
        assert made.feed == key
        assert table(current(answer.rows, key), "change_time") == table(expected, "ao", "bo")


@histories()
@given(NAMING.map(with_ids), TWO, st.sampled_from([JoinType.RIGHT, JoinType.OUTER]))
def test_table_join_by_a_part_of_the_left_key(events: list[Event], ways: list[Way], how: JoinType) -> None:
    """As of the lines of an order with the order: a line's key has that of the order, which is never null."""
    made, schemas = by_foreign_key(how, None, ["k", "id"])
    events = [one for one in events if one.source == "b" or one.row["k"] is not None]
    lines = [{**row, "line": (row["k"], row["id"])} for row in own(events, "a")]
    one, other = oracle.newest(lines, "line", "at", "ao"), oracle.newest(own(events, "b"), "k", "bt", "bo")
    pairs = oracle.joined_by_foreign_key(one, other, how.value, "k")
    expected = {(order, None if line is None else line[1]): row for (line, order), row in pairs.items()}
    for answer in answers(Chain([made], schemas, {"b": "bt", "a": "at"}), events, dict.fromkeys("ab", 0), ways):
        assert table(current(answer.rows, ["k", "id"]), "change_time") == table(expected, "ao", "bo", "line")


@histories()
@given(rows_of("a", NULLABLE, 14), TWO, LENGTHS)
def test_apply(events: list[Event], ways: list[Way], lateness: int) -> None:
    source = schema("a")
    made = make_apply(
        "out",
        Rows.of("a", source),
        Totals("av"),
        key="k",
        time="at",
        results=results_of(RESULTS),
        lateness=lateness * SECOND,
    )
    by_key = defaultdict[Any, list[Row]](list)
    for row in own(events, "a"):
        by_key[row["k"]].append(row)
    expected = bag(
        {"k": key, **told}
        for key, rows in by_key.items()
        for told in oracle.running_totals(rows, "at", "av", IDLE * SECOND, SOON * SECOND)
    )
    for answer in answers(Chain([made], {"a": source}, {"a": "at"}), events, {"a": lateness}, ways):
        assert bag(answer.rows) == expected


@histories()
@given(numbered("a", KEYS), TWO, LENGTHS)
def test_apply_with_an_order(events: list[Event], ways: list[Way], lateness: int) -> None:
    source = schema("a", id_=True)
    made = make_apply(
        "out", Rows.of("a", source), Totals("av"), key="k", time="at",
        results=results_of(RESULTS), lateness=lateness * SECOND, order="id",
    )  # fmt: skip
    expected = bag(
        {"k": key, **told}
        for key in KEYS
        for told in oracle.running_totals(
            [row for row in ordered(events, "a") if row["k"] == key], "at", "av", IDLE * SECOND, SOON * SECOND
        )
    )
    for answer in answers(Chain([made], {"a": source}, {"a": "at"}), events, {"a": lateness}, ways):
        assert bag(answer.rows) == expected
