"""Verbs in this process answer the same in any cut as at once, whatever kind of table their rows come in."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as _compute
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import Pond
from millpond.errors import ConfigurationError, RecordError
from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.calls.feeds import FEED
from millpond.processors.pond import MicroBatches
from millpond.processors.verbs import KeyContext, KeyedProcessor, Timer
from millpond.processors.verbs import aggregates as agg
from millpond.stores.encoding.times import TimeUnit
from tests.drawing import tries

pc: Any = _compute

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
TIME: pa.DataType = pa.timestamp("us", "UTC")
LEFT: Any = pa.schema([("k", pa.string()), ("t", TIME), ("a", pa.int64()), ("good", pa.bool_())])
RIGHT = pa.schema([("k", pa.string()), ("u", TIME), ("b", pa.int64())])
Rows = Sequence[Mapping[str, Any]]


def seconds(number: int) -> datetime:
    return START + timedelta(seconds=number)


class Quiet(KeyedProcessor):
    """Tells of each key how many rows had come whenever nothing comes for three seconds."""

    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> None:
        context.state.set(context.state.get(0) + 1)
        context.set_timer("3 seconds")

    def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> list[dict[str, Any]]:
        return [{"k": key, "n": context.state.get(), "at": context.time}]


class Verb(NamedTuple):
    """A verb, how many inputs it has, and the key of its feed; None if rows stay."""

    make: Callable[[Any, Any], Any]
    inputs: int
    key: Sequence[str] | None


def of_one(make: Callable[[Any], Any], left: Any, _: Any) -> Any:
    return make(left)


def verbs(pond: Any) -> dict[str, Verb]:
    calls = {"n": agg.count(), "s": agg.sum("a", where="good"), "f": agg.first("a"), "c": agg.collect("a")}
    grouped = partial(pond.aggregate, calls=calls, by="k", time="t")
    sides: dict[str, Any] = {"on": "k", "left_time": "t", "right_time": "u"}
    hour: dict[str, Any] = {"history": "1 hour"}
    tumbling, session = TimeWindows("5 seconds", grace="1 hour"), SessionWindows("3 seconds", grace="1 hour")
    fits, own = pc.field("b") <= pc.field("a"), pc.field("a") * 1000
    within: dict[str, Any] = {"tolerance": "9 seconds", "grace": "1 minute"}
    near: dict[str, Any] = {"direction": "nearest", "tolerance": "4 seconds", "grace": "1 minute"}
    one = {
        "latest": (partial(pond.latest, key="k", time="t", history="1 hour"), ["k"]),
        "aggregate": (grouped, ["k"]),
        "windows": (partial(grouped, window=tumbling), ["k", "window"]),
        "final windows": (partial(grouped, window=tumbling, emit="final"), None),
        "final sessions": (partial(grouped, window=session, emit="final"), None),
        "top": (partial(pond.top_n, n=2, by="k", order=["a", "t"], descending=[True, False], time="t"), ["k", "rank"]),
        "final top": (
            partial(pond.top_n, n=1, by="k", order="a", time="t", window=tumbling, emit="final"),
            None,
        ),
        "duplicates": (partial(pond.deduplicate, key="k", time="t", within="4 seconds", grace="1 hour"), None),
    }
    before = {**calls, "p": agg.lag("a", 2)}
    frames: dict[str, dict[str, Any]] = {"whole": {}, "last": {"last": 3}, "within": {"within": "4 seconds"}}
    for frame, reach in frames.items():
        shown = partial(pond.over, calls=before, key="k", time="t", grace="1 hour", ttl="20 seconds", **reach)
        one[f"over {frame}"] = shown, None
    two = {
        "asof": (partial(pond.asof_join, **sides, **hour, how="left", grace="1 minute"), None),
        "nearest": (partial(pond.asof_join, **sides, **hour, **near), None),
        "where": (partial(pond.asof_join, **sides, **hour, where=fits, how="left", grace="1 minute"), None),
        "next": (partial(pond.asof_join, **sides, **hour, where=fits, otherwise="next", **within, how="anti"), None),
        "own bounds": (partial(pond.stream_join, **sides, before=own, at_most="10 seconds", grace="1 hour"), None),
        "pairs": (partial(pond.stream_join, **sides, within="4 seconds", grace="1 hour", how="outer"), None),
        "anti": (partial(pond.stream_join, **sides, within="4 seconds", grace="1 hour", how="anti"), None),
        "tables": (partial(pond.table_join, **sides, **hour, how="outer", null_safe=True), ["k"]),
    }
    columns: list[tuple[str, pa.DataType]] = [("k", pa.string()), ("n", pa.int64()), ("at", TIME)]
    results = pa.schema(columns)
    one["apply"] = partial(pond.apply, processor=Quiet(), key="k", time="t", schema=results, lateness="1 hour"), None
    found = {name: Verb(partial(of_one, make), 1, key) for name, (make, key) in one.items()}
    return found | {name: Verb(make, 2, key) for name, (make, key) in two.items()}


def frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, frozen(one)) for name, one in value.items())
    return tuple(value) if isinstance(value, list) else value


def bag(tables: Sequence[pa.Table], key: Sequence[str] | None) -> Counter[Any]:
    """Return the rows, or of a change feed, those that are there in the end."""
    rows = [row for table in tables for row in table.to_pylist()]
    if key is not None:
        last: dict[Any, Any] = {}
        for row in sorted(rows, key=lambda row: int(row["sequence"])):
            last[tuple(frozen(row[name]) for name in key)] = row
        rows = [row for row in last.values() if row["op"] == "upsert"]
    # The time of a rank is that of its key's newest row by the end of the micro-batch that has changed it.
    apart = {"sequence", "change_time"} if key is not None and "rank" in key else {"sequence"}
    return Counter(frozen({name: one for name, one in row.items() if name not in apart}) for row in rows)


KEYS = st.sampled_from(["x", "y", None])


def rows(time: str, value: str, **more: Any) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return rows, no two of one key and time."""
    one = st.fixed_dictionaries(
        {"k": KEYS, time: st.integers(0, 30).map(seconds), value: st.none() | st.integers(0, 9), **more}
    )
    return st.lists(one, max_size=10, unique_by=lambda row: (row["k"], row[time]))


@pytest.mark.parametrize("name", verbs(Pond()))
@settings(max_examples=tries(24), deadline=None, derandomize=True, database=None)
@given(left=rows("t", "a", good=st.sampled_from([True, False, None])), right=rows("u", "b"), data=st.data())
def test_a_verb_in_any_cut_gives_what_it_gives_at_once(name: str, left: Rows, right: Rows, data: st.DataObject) -> None:
    verb = verbs(Pond())[name]
    at_once = verb.make(pa.Table.from_pylist(list(left), LEFT), pa.Table.from_pylist(list(right), RIGHT))
    arriving = data.draw(st.permutations([("left", row) for row in left] + [("right", row) for row in right]))
    with verbs(Pond().in_batches)[name].make(LEFT, RIGHT) as running:
        found = []
        while arriving:
            size = data.draw(st.integers(1, len(arriving)))
            some, arriving = arriving[:size], arriving[size:]
            fed = {side: [row for mine, row in some if mine == side] for side in ("left", "right")}
            found.append(feed(running, fed, verb.inputs))
        found += [running.advance(seconds(0)), running.complete()]
        assert running.late_rows == 0
    assert bag(found, verb.key) == bag([at_once], verb.key)
    assert all(table.schema.equals(at_once.schema) for table in found)


def feed(running: MicroBatches, fed: Mapping[str, Rows], inputs: int) -> pa.Table:
    return running.feed(fed["left"]) if inputs == 1 else running.feed(left=fed["left"], right=fed["right"])


TRADES = [{"symbol": "ACME", "t": seconds(5), "size": 100}, {"symbol": "MILL", "t": seconds(9), "size": 10}]
QUOTES = [{"symbol": "ACME", "t": seconds(second), "bid": bid} for second, bid in ((3, 9.5), (5, 9.75), (6, 9.8))]


class Stream:
    """A table that is known by its stream alone, as that of a library that nobody has imported."""

    def __init__(self, table: pa.Table) -> None:
        self.__arrow_c_stream__ = table.__arrow_c_stream__


def in_pandas(listed: Rows) -> Any:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(listed, index=[f"row {number}" for number in range(len(listed))])
    return frame.assign(t=frame["t"].astype("datetime64[ns, UTC]"), symbol=frame["symbol"].astype("category"))


@pytest.mark.parametrize("kind", [list, lambda listed: pa.Table.from_pylist(list(listed)), in_pandas,
                                  lambda listed: Stream(pa.Table.from_pylist(list(listed)))])  # fmt: skip
@pytest.mark.parametrize("backend", ["memory", "lmdb"])
def test_rows_come_in_any_kind_of_table(kind: Callable[[Rows], Any], backend: str) -> None:
    joined = Pond(backend=backend).asof_join(kind(TRADES), kind(QUOTES), on="symbol", time="t", how="left")
    assert joined.to_pylist() == [{**TRADES[0], "bid": 9.75}, {**TRADES[1], "bid": None}]


def test_a_verb_reads_the_change_feed_of_another_without_being_told() -> None:
    pond = Pond()
    changes = [{"k": "x", "t": seconds(1), "a": 1, "op": "c"}, {"k": "x", "t": seconds(2), "a": None, "op": "d"}]
    table = pond.latest(changes, key="k", time="t", op="op")
    assert table["op"].to_pylist() == ["upsert", "delete"]
    other = [{"k": "x", "u": seconds(0), "b": 7}]
    joined = pond.table_join(table, other, on="k", left_time="change_time", right_time="u")
    assert [(row["a"], row["b"], row["op"]) for row in joined.to_pylist()] == [(1, 7, "upsert"), (None, None, "delete")]


def test_changes_of_a_feed_count_in_its_order_also_by_another_time() -> None:
    pond, day = Pond(), START.date()
    values = [3, 1, 2]
    changes = [{"k": "x", "t": seconds(at), "day": day, "v": value} for at, value in enumerate(values)]
    feed = pond.latest(changes, key="k", time="t")
    for shuffled in (feed, feed.take([2, 0, 1])):
        assert pond.latest(shuffled, key="k", time="day", name="days")["v"].to_pylist()[-1] == 2


def test_time_passes_without_rows_and_what_comes_after_it_is_late() -> None:
    pond = Pond().in_batches
    window = TimeWindows("10 seconds")
    with pond.aggregate(LEFT, {"n": agg.count()}, by="k", time="t", window=window, emit="final") as running:
        assert running.feed([{"k": "x", "t": seconds(1)}]).num_rows == 0
        assert running.advance(seconds(11)).select(["k", "n"]).to_pylist() == [{"k": "x", "n": 1}]
        assert running.feed([{"k": "x", "t": seconds(2)}]).num_rows == 0
        assert running.late_rows == 1


def test_a_micro_batch_that_fails_leaves_no_trace() -> None:
    with Pond().in_batches.latest(RIGHT, key="k", time="u", history="1 hour") as running:
        with pytest.raises(RecordError, match=r"^verb 'latest-k', input: .*'u'"):
            running.feed([{"k": "x", "u": seconds(1), "b": 1}, {"k": "y", "u": None, "b": 2}])
        assert running.feed([{"k": "x", "u": seconds(1), "b": 1}])["b"].to_pylist() == [1]
    kept = Pond(on_error="dead-letter")
    assert kept.latest([{"k": "x", "u": None}, {"k": "x", "u": seconds(1)}], key="k", time="u").num_rows == 1
    assert len(kept.dead_letters) == 1


GIVEN: dict[str, Any] = {"on": "symbol", "time": "t"}
WRONG: dict[str, Callable[[Any], object]] = {
    r"asof_join: 'right' has no column 'symbol', only sym, t; did you mean": lambda pond: pond.asof_join(
        TRADES, [{"sym": 1, "t": seconds(1)}], **GIVEN
    ),
    r"latest: time is 'size', a column of type int64": lambda pond: pond.latest(TRADES, key="symbol", time="size"),
    r"stream_join 'near': the result would have the columns 'size' twice": lambda pond: pond.stream_join(
        TRADES, TRADES, **GIVEN, within="1 second", name="near"
    ),
    r"aggregate: where of 'n' is 'size', which is no column of bools": lambda pond: pond.aggregate(
        TRADES, {"n": agg.count(where="size")}, by="symbol", time="t"
    ),
    r"over: where of 'n' is .*, which is of type int64; give a condition, such as": lambda pond: pond.over(
        TRADES, {"n": agg.count(where=pc.field("size") + 1)}, key="symbol", time="t"
    ),
    r"aggregate: where of 'n' is [(]siz > 1[)]: [^;]*; give an expression": lambda pond: pond.aggregate(
        TRADES, {"n": agg.count_if(pc.field("siz") > 1)}, by="symbol", time="t"
    ),
    r"table_join: time is None": lambda pond: pond.table_join(TRADES, QUOTES, on="symbol"),
    r"asof_join: .*joins \(symbol: string\) with \(symbol: integer\)|symbol: int64": lambda pond: pond.asof_join(
        TRADES, [{"symbol": 1, "t": seconds(1)}], **GIVEN
    ),
    r"latest: rows is of type str; give a pyarrow.Table": lambda pond: pond.latest("rows", key="k", time="t"),
    r"latest: history is missing": lambda pond: pond.in_batches.latest(RIGHT, key="k", time="u"),
    r"latest-k: feed was given left; write feed\(rows\)": lambda pond: pond.in_batches.latest(
        RIGHT, key="k", time="u", history=1
    ).feed(left=[]),
    r"latest-k: 'input' has no column 'b'": lambda pond: pond.in_batches.latest(
        RIGHT, key="k", time="u", history=1
    ).feed(pa.table({"k": ["x"], "u": [seconds(1)]})),
}


@pytest.mark.parametrize("words", WRONG)
def test_what_is_refused_names_the_verb_and_the_column(words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        WRONG[words](Pond())


def test_a_condition_of_an_aggregate_is_an_expression_of_arrow() -> None:
    values = [1, None, 3, 5, 2]
    rows = [{"k": "x", "id": at, "t": seconds(at), "v": value} for at, value in enumerate(values)]
    calls = {
        "s": agg.sum("v", where=pc.field("v") > 2),
        "n": agg.count_if(pc.field("v") > 1),
        "none": agg.count(where=~(pc.field("v") > 1)),
        "all": agg.count(),
        "f": agg.first("v", where=pc.field("v") > 1),
        "last": agg.last("v", where=pc.field("id").isin([0, 1])),
    }
    expected = {"s": 8, "n": 3, "none": 1, "all": 5, "f": 3, "last": None}
    pond = Pond()
    at_once = pond.aggregate(rows, calls, by="k", time="t")
    assert at_once.select([*calls]).to_pylist() == [expected]
    feed = pond.latest(rows, key="id", time="t")
    assert pond.aggregate(feed, calls, by="k", time="t").select([*calls]).to_pylist()[-1] == expected
    over = pond.over(rows, calls, key="k", time="t")
    assert over.column_names == ["k", "id", "t", "v", *calls]
    assert over["n"].to_pylist() == [0, 0, 1, 2, 3]
    assert over["s"].to_pylist() == [None, None, 3, 8, 8]
    with pond.in_batches.aggregate(pa.Table.from_pylist(rows).schema, calls, by="k", time="t") as running:
        running.feed(rows[:3])
        assert running.feed(rows[3:]).select([*calls]).to_pylist() == [expected]


def test_conditions_of_equal_text_are_told_apart() -> None:
    pond, many = Pond(), list(range(100))
    rows = pa.table({"k": ["x"] * 2, "t": [seconds(0)] * 2, "v": [50, 1000], "(v > 60)": [True, False]})
    some, others = pc.field("v").isin([*many, 1000, *many]), pc.field("v").isin([*many, 1001, *many])
    calls = {
        "some": agg.count_if(some),
        "others": agg.count_if(others),
        "least": agg.min("v", where="(v > 60)"),
        "greatest": agg.min("v", where=pc.field("v") > 60),
    }
    counted = pond.aggregate(rows, calls, by="k", time="t").select([*calls]).to_pylist()
    assert counted == [{"some": 2, "others": 1, "least": 50, "greatest": 1000}]


def test_a_left_row_without_a_key_is_not_taken_for_a_right_row_alone() -> None:
    orders = [{"id": one, "c": "x", "t": seconds(1)} for one in (1, None)]
    customers = [{"c": name, "u": seconds(0), "b": number} for number, name in enumerate("xy")]
    given: dict[str, Any] = {"on": "c", "left_key": "id", "left_time": "t", "right_time": "u"}
    with pytest.raises(RecordError, match=r"^verb 'table_join-\S+', left: column 'id': null key in row 1 \("):
        Pond().table_join(orders, customers, **given, how="outer")
    assert Pond().table_join(orders, customers, **given, how="left").num_rows == 2
    kept = Pond(on_error="dead-letter")
    joined = kept.table_join(orders, customers, **given, how="outer")
    assert [(row["id"], row["c"]) for row in joined.to_pylist()] == [(None, "y"), (1, "x")]
    assert [(letter.topics, letter.reason) for letter in kept.dead_letters] == [(("left",), "dropped-null-key")]


@pytest.mark.parametrize("how", ["right", "outer"])
def test_a_key_of_a_right_row_alone_may_be_more_than_the_left_side_holds(how: Any) -> None:
    left = pa.table({"id": pa.array([1], pa.int8()), "c": pa.array([5], pa.int8()), "t": [seconds(0)]})
    right = pa.table({"c": pa.array([2**40, 5], pa.int64()), "u": [seconds(0)] * 2})
    sides: dict[str, Any] = {"on": "c", "left_time": "t", "right_time": "u", "how": how}
    pond = Pond()
    results = [
        pond.table_join(left, right, **sides, left_key="id"),
        pond.stream_join(left, right, **sides, within="1 minute"),
        *([pond.table_join(left.drop_columns(["id"]), right, **sides)] if how == "outer" else []),
    ]
    for result in results:
        assert result.schema.field("c").type == pa.int64()
        last = {row["c"]: row["u"] for row in result.to_pylist()}
        assert last == {2**40: seconds(0), 5: seconds(0)}


def test_a_feed_of_windows_is_of_the_key_alone_as_one_task_makes_all_windows_of_a_key() -> None:
    given: dict[str, Any] = {"by": "k", "time": "t", "window": TimeWindows("1 minute")}
    feed = Pond().aggregate([{"k": "x", "t": seconds(1)}], {"n": agg.count()}, **given)
    metadata = {field.name: field.metadata or {} for field in feed.schema}
    marks = {name: noted[FEED.encode()] for name, noted in metadata.items() if FEED.encode() in noted}
    assert marks["k"] == b'["aggregate-k", "key", "1", "2"]'
    assert marks["window"] == b'["aggregate-k", "row", "1", "2"]'


def test_times_with_nanoseconds_are_refused_by_name() -> None:
    nanos = pa.table({"k": ["x"], "t": pa.array([int(TimeUnit.MICROSECOND)], pa.timestamp("ns"))})
    with pytest.raises(RecordError, match="latest: the column 't' of 'input' has a value"):
        Pond().latest(nanos, key="k", time="t")


def fitting(left: Mapping[str, Any], right: Sequence[Mapping[str, Any]], next_: bool) -> int | None:
    """Return what a left row meets of the right rows of its key that are not later."""
    older = sorted((row for row in right if row["k"] == left["k"] and row["u"] <= left["t"]), key=lambda row: row["u"])
    some = [row["b"] for row in reversed(older) if next_ or row is older[-1]]
    found = [one for one in some if one is not None and left["a"] is not None and one <= left["a"]]
    return found[0] if found else None


@settings(max_examples=tries(40), deadline=None, derandomize=True, database=None)
@given(left=rows("t", "a"), right=rows("u", "b"), next_=st.booleans())
def test_a_condition_of_an_as_of_join_is_that_of_each_pair(left: Rows, right: Rows, next_: bool) -> None:
    tables = pa.Table.from_pylist(list(left), LEFT), pa.Table.from_pylist(list(right), RIGHT)
    over: dict[str, Any] = {"otherwise": "next", "tolerance": "1 minute"} if next_ else {}
    sides: dict[str, Any] = {"on": "k", "left_time": "t", "right_time": "u"}
    fits = pc.field("b") <= pc.field("a")
    joined = Pond().asof_join(*tables, **{**sides, **over}, how="left", where=fits, null_safe=True)
    found = Counter((row["k"], row["t"], row["b"]) for row in joined.to_pylist())
    assert found == Counter((row["k"], row["t"], fitting(row, right, next_)) for row in left)


@pytest.mark.parametrize("scale", ["milliseconds", "durations"])
@settings(max_examples=tries(40), deadline=None, derandomize=True, database=None)
@given(left=rows("t", "a"), right=rows("u", "b"))
def test_bounds_of_a_stream_join_are_those_of_each_left_row(scale: str, left: Rows, right: Rows) -> None:
    seconds_ = pc.field("a") * 1000
    own = seconds_ if scale == "milliseconds" else seconds_.cast(pa.duration("ms"))
    tables = pa.Table.from_pylist(list(left), LEFT), pa.Table.from_pylist(list(right), RIGHT)
    sides: dict[str, Any] = {"on": "k", "left_time": "t", "right_time": "u", "null_safe": True}
    joined = Pond().stream_join(*tables, **sides, before=own, after="2 seconds", at_most="9 seconds")
    pairs = [(one, other) for one in left for other in right if one["k"] == other["k"] and one["a"] is not None]
    near = [
        (one["k"], one["t"], other["u"])
        for one, other in pairs
        if -timedelta(seconds=one["a"]) <= other["u"] - one["t"] <= timedelta(seconds=2)
    ]
    assert Counter((row["k"], row["t"], row["u"]) for row in joined.to_pylist()) == Counter(near)
    assert joined.column_names == ["k", "t", "a", "good", "u", "b"]


@pytest.mark.parametrize("number", [3, 100])
def test_rows_may_have_nothing_but_a_key_and_a_time_that_the_result_has_from_elsewhere(number: int) -> None:
    pond = Pond()
    listed = [{"k": f"{one % 3}", "t": seconds(one)} for one in range(number)]
    feed = pond.latest(listed, key="k", time="t").drop_columns(["t"])
    again = pond.latest(feed, key="k", time="change_time")
    assert again.column_names == feed.column_names
    assert again["k"].to_pylist() == ["0", "1", "2"], "a row that is as the one before it is no change"
    assert pond.asof_join(listed, listed, on="k", time="t", how="left").to_pylist() == listed
    both = pond.table_join(feed, feed, on="k", left_time="change_time", right_time="change_time")
    assert {row["k"] for row in both.to_pylist()} == {"0", "1", "2"}


def test_to_import_it_takes_neither_spark_nor_pandas() -> None:
    script = "import sys; from millpond import Pond; assert not {'pyspark', 'pandas', 'polars'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


TIME_TABLES: dict[str, Callable[[pa.Table, pa.Table, Pond], pa.Table]] = {
    "aggregate": lambda rows, others, pond: pond.aggregate(rows, {"n": agg.max("t")}, by="k", time="t"),
    "windows": lambda rows, others, pond: pond.aggregate(
        rows, {"n": agg.count()}, by="k", time="t", window=TimeWindows("1 hour")
    ),
    "over": lambda rows, others, pond: pond.over(rows, {"n": agg.count()}, key="k", time="t", within="1 hour"),
    "asof_join": lambda rows, others, pond: pond.asof_join(rows, others, on="k", left_time="t", right_time="u"),
    "stream_join": lambda rows, others, pond: pond.stream_join(
        rows, others, on="k", left_time="t", right_time="u", within="1 hour"
    ),
}


@pytest.mark.parametrize("zone", ["UTC", None])
@pytest.mark.parametrize("verb", TIME_TABLES)
def test_a_time_of_another_year_than_1_to_9999_makes_a_row_unusable(verb: str, zone: str | None) -> None:
    now, last, first = 1_780_000_000_000_000, 253_402_300_799_999_999, -62_135_596_800_000_000

    def rows(column: str, *times: int) -> pa.Table:
        at: Any = pa.array(times, pa.timestamp("us", zone))
        return pa.table({"k": ["x"] * len(times), column: at})

    call = TIME_TABLES[verb]
    others = rows("u", now)
    for good in (first, last):
        call(rows("t", now, good), others, Pond())
    for bad, said in ((last + 1, "after the year 9999"), (2**63 - 1, "after the year 9999"),
                      (first - 1, "before the year 1"), (-(2**63), "before the year 1")):  # fmt: skip
        with pytest.raises(RecordError, match=f"column 't': a time {said} in row 1 .*timestamp={bad}"):
            call(rows("t", now, bad), others, Pond())
        pond = Pond(on_error="dead-letter")
        assert call(rows("t", now, bad), others, pond).num_rows == call(rows("t", now), others, Pond()).num_rows
        assert [letter.reason for letter in pond.dead_letters] == ["dropped-bad-timestamp"]


def test_a_date_that_no_timestamp_counts_makes_a_row_unusable() -> None:
    for days, said in ((2**31 - 1, "after the year 9999"), (-(2**31), "before the year 1")):
        at: Any = pa.array([20_000, None, days], pa.int32()).cast(pa.date32())
        rows = pa.table({"k": ["x"] * 3, "t": at})
        with pytest.raises(RecordError, match=f"column 't': a time {said} in row 1 "):
            Pond().aggregate(rows.filter(pa.array([True, False, True])), {"n": agg.count()}, by="k", time="t")
        pond = Pond(on_error="skip")
        assert pond.aggregate(rows, {"n": agg.count()}, by="k", time="t")["n"].to_pylist() == [1]


def test_an_operation_that_is_none_is_told_with_its_column_and_those_that_there_are() -> None:
    rows = [{"k": str(number), "t": seconds(number), "o": word} for number, word in enumerate(["c", "remove", None])]
    known = "known are upsert, insert, .*delete, d, .*, in upper or lower case"
    given: dict[str, Any] = {"key": "k", "time": "t", "op": "o"}
    with pytest.raises(RecordError, match=f"column 'o': the unknown operation 'remove' in row 1 .*{known}"):
        Pond().latest(rows, **given)
    with pytest.raises(RecordError, match=f"column 'o': no operation in row 1 .*{known}"):
        Pond().latest([rows[0], rows[2]], **given)
    pond = Pond(on_error="dead-letter")
    assert pond.latest(rows, **given)["k"].to_pylist() == ["0"]
    said = [letter.error.partition(" in row")[0] for letter in pond.dead_letters]
    assert said == ["column 'o': the unknown operation 'remove'", "column 'o': no operation"]
    assert Pond().latest([{**row, "o": "Delete"} for row in rows], **given)["op"].to_pylist() == []


def test_windows_that_cannot_be_are_told_in_the_lengths_that_were_given() -> None:
    rows = pa.table({"k": ["a"], "at": [datetime(2026, 6, 1)]})
    with pytest.raises(ConfigurationError, match="before is '1 hour' and after '-2 hours'"):
        Pond().stream_join(rows, rows, on="k", time="at", before="1 hour", after="-2 hours")
    with pytest.raises(ConfigurationError, match="an advance of '2 hours' leaves gaps between windows of '1 hour'"):
        TimeWindows("1 hour", advance="2 hours")
