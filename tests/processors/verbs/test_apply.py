"""``apply``: what a rule sees, and in which order, whatever the order of arrival, the micro-batches and the tasks."""

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, RecordError
from millpond.processors import CounterName, Record, Topology, TopologyDriver
from millpond.processors.verbs.apply import apply_topology
from millpond.processors.verbs.encoding.ordered_rows import with_order
from millpond.processors.verbs.key_timers import Timer, TimerClock
from millpond.processors.verbs.keyed_processor import KeyContext, KeyedProcessor
from millpond.processors.verbs.rule_run import ENDLESS
from millpond.stores.encoding.keys import DATA, INDEX, TIMERS
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.typed import expiry
from tests.drawing import tries

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEYS = KeyCodec(pa.schema([("key", pa.string())]))
LATENESS = 10
WAITING = f"out:{CounterName.WAITING}"

Row = Mapping[str, Any]


class Arrival(NamedTuple):
    """A record: its key, its time, what the rule shall do, and with which timer, how much later."""

    key: str
    time: int
    do: str = "see"
    name: str = ""
    delay: int = 0


COLUMNS: Any = [("do", pa.string()), ("name", pa.string()), ("delay", pa.int64())]
ROWS = RowCodec(Schemas.first(pa.schema(COLUMNS)))


class Obedient(KeyedProcessor):
    """Does what its rows say, and tells all that it sees."""

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> Iterator[Row]:
        yield {"saw": row["do"], "at": micros(context.time), "before": seen(context)}
        if row["do"] == "set":
            context.set_timer(timedelta(microseconds=row["delay"]), row["name"])
        elif row["do"] == "set-at":
            context.set_timer(EPOCH + timedelta(microseconds=row["delay"]), row["name"])
        elif row["do"] == "cancel":
            context.cancel_timer(row["name"])
        elif row["do"] == "forget":
            context.state.delete()

    def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> list[Row]:
        assert timer.time == context.time
        before = seen(context)
        if timer.name == "chain" and before % 4:
            context.set_timer(timedelta(microseconds=before), "chain")
        return [{"fired": timer.name, "at": micros(context.time), "before": before}]


def seen(context: KeyContext) -> int:
    """Return how many calls the key had before, which are counted in its state."""
    state = context.state.get({"calls": 0})
    count: int = state["calls"]
    state["calls"] += 1
    context.state.set(state)
    return count


def micros(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def topology(
    rule: KeyedProcessor,
    lateness: int = LATENESS,
    rows: RowCodec = ROWS,
    keys: KeyCodec = KEYS,
    ttl: int | None = None,
) -> Topology:
    return apply_topology("out", rule, keys, rows, lateness, ttl=ttl)


def packed(arrivals: Sequence[Arrival]) -> list[tuple[bytes, bytes, int]]:
    keys = KEYS.pack(pa.table({"key": pa.array([arrival.key for arrival in arrivals], pa.string())}))
    columns = {
        field.name: pa.array([getattr(arrival, field.name) for arrival in arrivals], field.type)
        for field in ROWS.schemas.current
    }
    return list(zip(keys, ROWS.pack(pa.table(columns)), [arrival.time for arrival in arrivals], strict=True))


def by_key(records: Iterable[Record]) -> dict[str, list[Any]]:
    """Return the results of each key, in their order."""
    found: dict[str, list[Any]] = {}
    for record in records:
        key: Any = KEYS.unpack([record.key])["key"][0].as_py()
        assert record.value["at"] == record.timestamp
        found.setdefault(key, []).append(record.value)
    return found


def run(arrivals: Sequence[Arrival], cuts: Sequence[int] = (), **options: Any) -> dict[str, list[Any]]:
    """Return what comes out of micro-batches that end at ``cuts``, and in the end of ``complete``."""
    with TopologyDriver(topology(Obedient(), **options)) as driver:
        for start, stop in pairwise([0, *sorted(cuts), len(arrivals)]):
            driver.pipe_all("input", packed(arrivals[start:stop]))
        driver.complete()
        return by_key(driver.read("out"))


class Oracle:
    """The context of a key of which all records are known: a sorted list and two variables."""

    def __init__(self) -> None:
        self.out: list[Any] = []
        self.timers: dict[str, int] = {}
        self.calls = 0
        self.now = 0

    def tell(self, what: str, value: str, time: int) -> int:
        self.now = time
        self.out.append({what: value, "at": time, "before": self.calls})
        self.calls += 1
        return self.calls - 1

    def fire(self, before: float) -> None:
        while self.timers and min(self.timers.values()) < before:
            time, name = min((time, name) for name, time in self.timers.items())
            del self.timers[name]
            count = self.tell("fired", name, time)
            if name == "chain" and count % 4:
                self.timers["chain"] = time + count

    def run(self, arrivals: Iterable[Arrival]) -> list[Any]:
        for arrival in sorted(arrivals, key=lambda arrival: arrival.time):
            self.fire(arrival.time)
            self.tell("saw", arrival.do, arrival.time)
            if arrival.do == "set":
                self.timers[arrival.name] = max(self.now, self.now + arrival.delay)
            elif arrival.do == "set-at":
                self.timers[arrival.name] = max(self.now, arrival.delay)
            elif arrival.do == "cancel":
                self.timers.pop(arrival.name, None)
            elif arrival.do == "forget":
                self.calls = 0
        self.fire(float("inf"))
        return self.out


def expected(arrivals: Sequence[Arrival]) -> dict[str, list[Any]]:
    return {
        key: Oracle().run(arrival for arrival in arrivals if arrival.key == key)
        for key in {arrival.key for arrival in arrivals}
    }


ARRIVALS = st.builds(
    Arrival,
    st.sampled_from(["a", "b", "c\0", ""]),
    st.integers(0, 60),
    st.sampled_from(["see", "set", "set", "set-at", "cancel", "forget"]),
    st.sampled_from(["", "chain", "\0é"]),
    st.integers(-5, 40),
)


@st.composite
def within_lateness(draw: st.DrawFn) -> list[Arrival]:
    """Draw records none of which comes when another one is more than the lateness ahead of it."""
    arrivals = draw(st.lists(st.tuples(ARRIVALS, st.integers(0, LATENESS)), max_size=30))
    return [arrival for arrival, _ in sorted(arrivals, key=lambda pair: pair[0].time + pair[1])]


CUTS = st.lists(st.integers(0, 30), max_size=6)


@settings(max_examples=tries(300), deadline=None)
@given(within_lateness(), CUTS)
def test_a_key_sees_its_records_and_timers_in_the_order_of_time(arrivals: list[Arrival], cuts: list[int]) -> None:
    assert run(arrivals, [cut for cut in cuts if cut <= len(arrivals)]) == expected(arrivals)


@settings(max_examples=tries(100), deadline=None)
@given(within_lateness(), CUTS, st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_the_tasks_that_keys_are_spread_over_make_no_difference(
    arrivals: list[Arrival], cuts: list[int], tasks: list[int]
) -> None:
    task_of = dict(zip(["a", "b", "c\0", ""], tasks, strict=True))
    found: dict[str, list[Any]] = {}
    for task in set(tasks):
        own = [arrival for arrival in arrivals if task_of[arrival.key] == task]
        found |= run(own, [cut for cut in cuts if cut <= len(own)])
    assert found == expected(arrivals)


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
@settings(max_examples=15, deadline=None)
@given(arrivals=within_lateness(), cuts=CUTS)
def test_a_restart_between_any_two_batches_makes_no_difference(
    backend: str, arrivals: list[Arrival], cuts: list[int]
) -> None:
    bounds = [0, *sorted(cut for cut in cuts if cut <= len(arrivals)), len(arrivals)]
    out: list[Record] = []
    with TemporaryDirectory() as directory:
        for start, stop in pairwise(bounds):
            with TopologyDriver(topology(Obedient()), backend=backend, local_dir=directory) as driver:
                driver.pipe_all("input", packed(arrivals[start:stop]))
                out += driver.read("out")
        with TopologyDriver(topology(Obedient()), backend=backend, local_dir=directory) as driver:
            driver.complete()
            for store in ("out-waiting", "out-timers", "out-state"):
                driver.store(store).check()
            assert driver.store("out-waiting").len_estimate() == driver.store("out-timers").len_estimate() == 0
            assert by_key([*out, *driver.read("out")]) == expected(arrivals)


def test_a_state_with_an_order_is_not_that_of_one_without() -> None:
    """Waiting rows have the order in front of them."""
    plain, ordered = (apply_topology("out", Obedient(), KEYS, ROWS, LATENESS, ordered=one) for one in (False, True))
    assert plain.fingerprint != ordered.fingerprint


class Saying(KeyedProcessor):
    """Repeats what rows say."""

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> Iterable[dict[str, Any]]:
        return [{"do": row["do"]}]


@pytest.mark.parametrize("lateness", [0, 5])
@pytest.mark.parametrize("together", [False, True])
def test_an_order_holds_for_a_record_that_is_late_by_all_of_the_lateness(lateness: int, together: bool) -> None:
    rows = packed([Arrival("a", 10, "second"), Arrival("a", 10 + lateness, "last"), Arrival("a", 10, "first")])
    values = with_order([b"2", b"3", b"1"], [row for _, row, _ in rows])
    records = [(key, value, time) for (key, _, time), value in zip(rows, values, strict=True)]
    with TopologyDriver(apply_topology("out", Saying(), KEYS, ROWS, lateness, ordered=True)) as driver:
        for batch in [records] if together else [records[:2], records[2:]]:
            driver.pipe_all("input", batch)
        driver.complete()
        said = [record.value["do"] for record in driver.read("out")]
        assert said == (["first", "second", "last"])


def test_records_wait_for_the_lateness_and_no_longer() -> None:
    with TopologyDriver(topology(Obedient())) as driver:
        driver.pipe_all("input", packed([Arrival("a", 20), Arrival("a", 10), Arrival("b", 29)]))
        assert [record.timestamp for record in driver.read("out")] == [10]
        driver.pipe_all("input", packed([Arrival("b", 30)]))
        assert [record.timestamp for record in driver.read("out")] == [20]


def test_a_record_that_is_later_than_the_lateness_is_dropped_and_counted() -> None:
    with TopologyDriver(topology(Obedient())) as driver:
        driver.pipe_all("input", packed([Arrival("a", 20)]))
        driver.pipe_all("input", packed([Arrival("a", 9, "set"), Arrival("a", 10)]))
        driver.pipe_all("input", packed([Arrival("a", 8), Arrival("b", 9)]))
        driver.complete()
        assert by_key(driver.read("out")) == {"a": Oracle().run([Arrival("a", 10), Arrival("a", 20)])}
        assert driver.counters == {f"out:{CounterName.DROPPED_LATE}": 3, WAITING: 0}


def test_no_record_is_late_by_what_its_own_micro_batch_shows() -> None:
    arrivals = [Arrival("a", 20), Arrival("a", 9, "set"), Arrival("b", 35), Arrival("a", 8)]
    with TopologyDriver(topology(Obedient())) as driver:
        driver.pipe_all("input", packed(arrivals))
        driver.complete()
        assert by_key(driver.read("out")) == expected(arrivals)
        assert driver.counters == {WAITING: 0}


def test_without_lateness_records_come_in_order_or_are_late() -> None:
    with TopologyDriver(topology(Obedient(), lateness=0)) as driver:
        driver.pipe_all("input", packed([Arrival("a", 20), Arrival("a", 20)]))
        driver.pipe_all("input", packed([Arrival("b", 19), Arrival("b", 21)]))
        assert [record.timestamp for record in driver.read("out")] == [20, 20, 21]
        assert driver.counters == {f"out:{CounterName.DROPPED_LATE}": 1, WAITING: 0}


def test_a_timer_fires_after_the_records_of_its_time_and_before_later_ones() -> None:
    arrivals = [
        Arrival("a", 5, "set", "first", 3),
        Arrival("a", 5, "set", "second", 3),
        Arrival("a", 9),
        Arrival("a", 8, "see"),
    ]
    told = [(value.get("saw") or value["fired"], value["at"]) for value in run(arrivals)["a"]]
    assert told == [("set", 5), ("set", 5), ("see", 8), ("first", 8), ("second", 8), ("see", 9)]


def test_a_timer_waits_until_no_record_of_its_time_can_come() -> None:
    with TopologyDriver(topology(Obedient())) as driver:
        driver.pipe_all("input", packed([Arrival("a", 5, "set", "", 3), Arrival("b", 18)]))
        assert [record.timestamp for record in driver.read("out")] == [5]
        driver.pipe_all("input", packed([Arrival("a", 8, "cancel"), Arrival("b", 19)]))
        assert [record.timestamp for record in driver.read("out")] == [8]
        driver.complete()
        assert [record.timestamp for record in driver.read("out")] == [18, 19]


def test_what_is_set_again_fires_once_and_at_the_new_time() -> None:
    arrivals = [Arrival("a", 1, "set", "", 5), Arrival("a", 2, "set", "", 50), Arrival("a", 3, "set", "other", 1)]
    fired = [(value["fired"], value["at"]) for value in run(arrivals)["a"] if "fired" in value]
    assert fired == [("other", 4), ("", 52)]


def test_a_timer_for_a_time_that_has_passed_fires_next_at_the_current_time() -> None:
    arrivals = [Arrival("a", 7, "set-at", "", 2), Arrival("a", 7), Arrival("a", 8)]
    assert [(*value,)[0] + str(value["at"]) for value in run(arrivals)["a"]] == ["saw7", "saw7", "fired7", "saw8"]


def test_what_comes_after_the_end_of_the_input_goes_on_from_there_and_nothing_comes_twice() -> None:
    with TopologyDriver(topology(Obedient())) as driver:
        driver.complete()
        driver.pipe_all("input", packed([Arrival("a", 20, "set", "", 30), Arrival("b", 15)]))
        driver.complete()
        assert [record.timestamp for record in driver.read("out")] == [15, 20, 50]
        driver.complete()
        assert driver.read("out") == []
        driver.pipe_all("input", packed([Arrival("a", 19), Arrival("a", 20), Arrival("a", 25)]))
        assert driver.counters == {f"out:{CounterName.DROPPED_LATE}": 1, WAITING: 2}
        driver.complete()
        assert [record.timestamp for record in driver.read("out")] == [20, 25]


def test_a_longer_lateness_does_not_bring_back_what_was_too_late_before(tmp_path: Path) -> None:
    for lateness, times in ((0, [20]), (15, [19, 35])):
        with TopologyDriver(topology(Obedient(), lateness), backend="lmdb", local_dir=tmp_path) as driver:
            driver.pipe_all("input", packed([Arrival("a", time) for time in times]))
            assert [record.timestamp for record in driver.read("out")] == [20] * (not lateness)
            late = {f"out:{CounterName.DROPPED_LATE}": 1} if lateness else {}
            assert driver.counters == {**late, WAITING: 1 if lateness else 0}


class Calling(KeyedProcessor):
    """Runs functions that a test gives."""

    def __init__(
        self,
        process: Callable[[KeyContext], Any] = lambda context: None,
        on_timer: Callable[[KeyContext], Any] = lambda context: None,
    ) -> None:
        self._process = process
        self._on_timer = on_timer

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> Any:
        return self._process(context)

    def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> Any:
        return self._on_timer(context)


def started(rule: KeyedProcessor) -> TopologyDriver:
    """Return a driver that has processed one record, of key "a" and time 5."""
    driver = TopologyDriver(topology(rule, lateness=0))
    driver.pipe_all("input", packed([Arrival("a", 5)]))
    return driver


def test_wall_clock_timers_fire_when_the_clock_has_come_to_them_and_not_at_the_end_of_the_input() -> None:
    def process(context: KeyContext) -> None:
        context.set_wall_clock_timer(timedelta(milliseconds=5), "after")
        context.set_wall_clock_timer(EPOCH + timedelta(milliseconds=20), "at")
        context.set_wall_clock_timer("8 milliseconds", "never")
        context.cancel_wall_clock_timer("never")
        context.set_timer(timedelta(0), "at")

    class Clock(Calling):
        def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> Any:
            return [{"fired": timer.name, "clock": timer.clock, "now": micros(context.wall_clock)}]

    with started(Clock(process)) as driver:
        driver.advance_wall_clock(4)
        assert driver.read("out") == []
        driver.complete()
        assert [record.value["clock"] for record in driver.read("out")] == [TimerClock.EVENT_TIME]
        driver.advance_wall_clock(7)
        driver.advance_wall_clock(8)
        driver.advance_wall_clock(1)
        driver.advance_wall_clock(1)
        assert [(record.timestamp, record.value["fired"], record.value["now"]) for record in driver.read("out")] == [
            (5000, "after", 11000),
            (20000, "at", 20000),
        ]


def test_a_wall_clock_timer_can_set_the_next_one() -> None:
    def again(context: KeyContext) -> list[Row]:
        context.set_wall_clock_timer(timedelta(milliseconds=10))
        return [{}]

    with started(Calling(again, again)) as driver:
        driver.read("out")
        for milliseconds in (10, 9, 1, 100):
            driver.advance_wall_clock(milliseconds)
        assert [record.timestamp for record in driver.read("out")] == [10_000, 20_000, 30_000]


def test_a_timer_that_sets_itself_stops_when_it_is_told_that_the_input_is_complete() -> None:
    def tick(context: KeyContext) -> list[Row]:
        if not context.input_complete:
            context.set_timer(timedelta(microseconds=10))
        return [{"at": micros(context.time)}]

    with started(Calling(tick, tick)) as driver:
        driver.pipe_all("input", packed([Arrival("b", 31)]))
        assert [record.timestamp for record in driver.read("out")] == [5, 15, 25, 31]
        driver.complete()
        assert [record.timestamp for record in driver.read("out")] == [35, 41]


def test_timers_that_never_end_are_an_error_that_says_so() -> None:
    def tick(context: KeyContext) -> None:
        context.set_timer(timedelta(microseconds=10), "tick")

    with started(Calling(tick, tick)) as driver:
        with pytest.raises(
            RecordError, match=r"key 'a' of Calling in apply 'out' .* after the end .* 'tick'.*input_com"
        ):
            driver.complete()
        driver.pipe_all("input", packed([Arrival("b", 8)]))

    def until_the_end(context: KeyContext) -> None:
        if not context.input_complete:
            tick(context)

    with started(Calling(until_the_end, until_the_end)) as driver:
        driver.complete()
        driver.pipe_all("input", packed([Arrival("b", 8)]))

    def now(context: KeyContext) -> None:
        context.set_timer(context.time)

    with started(Calling(now, now)) as driver:
        with pytest.raises(RecordError, match=r"key 'a' .* at 1970-01-01T00:00:00.000005 UTC, .* later time than"):
            driver.pipe_all("input", packed([Arrival("b", 8)]))
        assert driver.read("out") == []


def test_as_long_as_time_moves_timers_may_set_themselves_as_often_as_they_like() -> None:
    def tick(context: KeyContext) -> list[Row]:
        context.set_timer(timedelta(microseconds=1))
        return [{}]

    with started(Calling(lambda context: context.set_timer("1 microsecond"), tick)) as driver:
        driver.pipe_all("input", packed([Arrival("b", 5 + 2 * ENDLESS)]))
        assert len(driver.read("out")) == 2 * ENDLESS - 1


def test_what_goes_wrong_in_a_rule_names_the_rule_the_key_and_the_time_and_keeps_nothing() -> None:
    def process(context: KeyContext) -> Iterator[Row]:
        calls = context.state.get(0) + 1
        context.state.set(calls)
        context.set_timer(timedelta(0))
        yield {"calls": calls}
        if micros(context.time) == 7:
            raise KeyError("price")

    with started(Calling(process)) as driver:
        expected = (
            r"^operator 'out' of task 0_0 .*, process of Calling at 1970-01-01T00:00:00.000007 UTC: KeyError: 'price' "
            r"\(key 'b', timestamp 7, "
        )
        with pytest.raises(RecordError, match=expected) as caught:
            driver.pipe_all("input", packed([Arrival("a", 6), Arrival("b", 7)]))
        assert isinstance(caught.value.__cause__, KeyError)
        driver.pipe_all("input", packed([Arrival("a", 8)]))
        assert [record.value for record in driver.read("out")] == [{"calls": 1}, {"calls": 2}]


def test_a_record_or_timer_that_fails_has_no_effect_where_such_are_left_out() -> None:
    def process(context: KeyContext) -> Iterator[Row]:
        time = micros(context.time)
        context.state.set([*context.state.get([]), time])
        yield {"states": context.state.get()}
        if time == 5:
            context.set_timer(timedelta(microseconds=10), "kept")
            context.set_timer(timedelta(microseconds=20), "moved")
        if time == 7:
            context.cancel_timer("kept")
            context.set_timer(timedelta(microseconds=1), "moved")
            context.set_timer(timedelta(microseconds=1), "new")
            raise KeyError("price")

    class Rule(Calling):
        def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> Any:
            context.state.delete()
            if timer.name == "kept":
                raise ValueError("timer")
            return [{"timer": timer.name, "at": micros(context.time)}]

    with TopologyDriver(topology(Rule(process), lateness=0), on_error="dead-letter") as driver:
        driver.pipe_all("input", packed([Arrival("a", time) for time in (5, 7, 9)]))
        driver.pipe_all("input", packed([Arrival("b", 40)]))
        assert [record.value for record in driver.read("out")] == [
            {"states": [5]},
            {"states": [5, 9]},
            {"timer": "moved", "at": 25},
            {"states": [40]},
        ]
        assert driver.counters["out:dropped-user-error"] == 2
        assert [(letter.key, letter.timestamp, letter.error) for letter in driver.dead_letters] == [
            ("a", 7, "process of Rule at 1970-01-01T00:00:00.000007 UTC: KeyError: 'price'"),
            ("a", 15, "on_timer of Rule at 1970-01-01T00:00:00.000015 UTC: ValueError: timer"),
        ]


def test_a_row_counts_as_it_was_when_it_was_yielded() -> None:
    def process(context: KeyContext) -> Iterator[Row]:
        row = {}
        for row["n"] in range(3):
            yield row

    with started(Calling(process)) as driver:
        assert [record.value for record in driver.read("out")] == [{"n": 0}, {"n": 1}, {"n": 2}]


def refused(process: Callable[[KeyContext], Any]) -> str:
    with pytest.raises(RecordError) as caught:
        started(Calling(process)).close()
    return caught.value.sentence


def test_results_that_are_no_rows_are_refused() -> None:
    def yielding(context: KeyContext) -> Iterator[Row]:
        yield {"a": 1}

    assert "returned one row, {'a': 1}; return a list of rows, or yield them" in refused(lambda context: {"a": 1})
    assert "gave ('a', 1), which is no row; give dicts of columns" in refused(lambda context: [("a", 1)])
    assert "returned 'no row'; return a list of rows, dicts of columns," in refused(lambda context: "no row")
    for rule in (lambda context: [{"a": 1}], yielding):
        with started(Calling(rule)) as driver:
            assert [record.value for record in driver.read("out")] == [{"a": 1}]


def test_a_value_that_python_cannot_hold_is_filtered_out_or_cast() -> None:
    far = pa.array([0, 100_000 * 365 * 86_400 * 10**6], pa.timestamp("us"))

    def seen_by_a_rule(values: Any) -> list[Any]:
        class Looking(KeyedProcessor):
            def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> list[Row]:
                return [row]

        rows = RowCodec(Schemas.first(pa.schema([("at", values.type)])))
        keys = KEYS.pack(pa.table({"key": ["a"] * len(values)}))
        with TopologyDriver(topology(Looking(), lateness=0, rows=rows)) as driver:
            packed_rows = rows.pack(pa.table({"at": values}))
            driver.pipe_all("input", list(zip(keys, packed_rows, range(len(values)), strict=True)))
            driver.complete()
            return [record.value["at"] for record in driver.read("out")]

    told = "column 'at' has a value that Python cannot hold .*; filter such rows out, or cast the column to a string or"
    with pytest.raises(RecordError, match=told):
        seen_by_a_rule(far)
    assert seen_by_a_rule(far[:1]) == [datetime(1970, 1, 1)]
    assert seen_by_a_rule(far.cast(pa.int64())) == far.cast(pa.int64()).to_pylist()
    numbers = far.cast(pa.int64())
    assert seen_by_a_rule(numbers.cast(pa.string())) == [str(one) for one in numbers.to_pylist()]


def test_timers_for_what_is_no_time_are_refused() -> None:
    assert "has no time zone" in refused(lambda context: context.set_timer(datetime(2024, 1, 1)))
    assert "give a datetime, a timedelta, or text" in refused(lambda context: context.set_timer(5))  # type: ignore[arg-type]
    assert "'5 lightyears'" in refused(lambda context: context.set_wall_clock_timer("5 lightyears"))
    assert "name of a timer is 1" in refused(lambda context: context.cancel_timer(1))  # type: ignore[arg-type]


def test_a_rule_that_sets_timers_must_say_what_they_do() -> None:
    class Silent(KeyedProcessor):
        def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> None:
            context.set_timer("1 second")

    with (
        started(Silent()) as driver,
        pytest.raises(RecordError, match=r"on_timer of Silent .* does not override on_tim"),
    ):
        driver.complete()


def test_state_carries_what_messagepack_does_and_refuses_the_rest() -> None:
    value = {"at": EPOCH, "price": Decimal("1.5"), "items": [1, None, {"a": b"b"}]}

    def process(context: KeyContext) -> list[Row]:
        before = context.state.get()
        context.state.set(value)
        return [{"before": before}]

    with started(Calling(process)) as driver:
        driver.pipe_all("input", packed([Arrival("a", 6), Arrival("b", 6)]))
        assert [record.value["before"] for record in driver.read("out")] == [None, value, None]
    assert "SerdeError" in refused(lambda context: context.state.set(object()))


def test_a_change_of_state_that_is_not_set_does_not_count_even_within_a_batch() -> None:
    def process(context: KeyContext) -> list[Row]:
        seen = context.state.get([])
        if not seen:
            context.state.set(seen)
        seen.append(1)
        return [{"seen": len(seen)}]

    with started(Calling(process)) as driver:
        driver.pipe_all("input", packed([Arrival("a", 6), Arrival("a", 7)]))
        assert [record.value["seen"] for record in driver.read("out")] == [1, 1, 1]


def test_every_task_has_a_rule_of_its_own_that_is_opened_and_closed() -> None:
    log: list[str] = []

    class Counting(KeyedProcessor):
        count = 0

        def open(self) -> None:
            log.append("open")

        def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> list[Row]:
            self.count += 1
            return [{"count": self.count}]

        def close(self) -> None:
            log.append("close")

    rule = Counting()
    built = topology(rule, lateness=0)
    for _ in range(2):
        with TopologyDriver(built) as driver:
            driver.pipe_all("input", packed([Arrival("a", 6), Arrival("a", 7)]))
            assert [record.value["count"] for record in driver.read("out")] == [1, 2]
    assert rule.count == 0
    assert log == ["open", "close"] * 2


def test_a_topology_travels_to_workers_with_its_rule() -> None:
    arrivals = [Arrival("a", 20, "set", "", 30), Arrival("b", 15)]
    with TopologyDriver(pickle.loads(pickle.dumps(topology(Obedient())))) as driver:
        driver.pipe_all("input", packed(arrivals))
        driver.complete()
        assert by_key(driver.read("out")) == expected(arrivals)


def test_what_cannot_be_run_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigurationError, match=r"the class Obedient; give an object: Obedient\(\)"):
        topology(Obedient)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="lateness of apply 'out' is -1 us"):
        topology(Obedient(), lateness=-1)
    rule = Obedient()
    rule.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match=r"cannot copy its Obedient.*make connections and the like in open"):
        topology(rule)
    places = pa.struct([("x", pa.int64())])
    rows = RowCodec(Schemas.first(pa.schema([("of", pa.list_(pa.map_(places, pa.string())))])))
    with pytest.raises(ConfigurationError, match=r"keys of column 'of\.element' .* cannot be those of a dict"):
        topology(Obedient(), rows=rows)


def test_rows_and_keys_are_plain_python_values() -> None:
    zoned, local = pa.timestamp("us", "UTC"), pa.timestamp("us")
    columns: dict[str, tuple[Any, Any]] = {
        "at": (zoned, datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)),
        "local": (local, datetime(1969, 12, 31, 23, 59, 59, 999999)),
        "price": (pa.decimal128(10, 2), Decimal("1.50")),
        "wait": (pa.duration("us"), timedelta(microseconds=-1)),
        "scores": (pa.map_(pa.string(), zoned), {"a": EPOCH, "b": None}),
        "items": (pa.list_(pa.struct([("at", zoned), ("n", pa.int32())])), [{"at": EPOCH, "n": 1}, None]),
        "nothing": (pa.list_(zoned), None),
        "blob": (pa.binary(), b"\0"),
    }
    schema = pa.schema([pa.field(name, type_) for name, (type_, _) in columns.items()])
    rows, keys = RowCodec(Schemas.first(schema)), KeyCodec(pa.schema([("n", pa.int64()), ("at", zoned)]))
    expected = {name: value for name, (_, value) in columns.items()}
    entries = {**expected, "scores": [("a", EPOCH), ("b", None)]}
    table = pa.table({name: pa.array([entries[name], None], schema.field(name).type) for name in schema.names})
    key = pa.table({"n": pa.array([1, None]), "at": pa.array([EPOCH, None], zoned)})
    got: list[Any] = []

    class Noting(Obedient):
        def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> Iterator[Row]:
            got.append((key, row))
            yield from ()

    with TopologyDriver(topology(Noting(), 0, rows, keys)) as driver:
        driver.pipe_all("input", zip(keys.pack(key), rows.pack(table), [1, 2], strict=True))
    assert got == [((1, EPOCH), expected), ((None, None), dict.fromkeys(columns))]
    assert {got[0][0][1].tzinfo, got[0][1]["at"].tzinfo, got[0][1]["items"][0]["at"].tzinfo} == {UTC}


def test_an_order_that_is_not_paid_within_30_minutes_raises_an_alert() -> None:
    class Unpaid(KeyedProcessor):
        def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> None:
            if row["do"] == "ordered":
                context.set_timer(timedelta(minutes=30))
            elif row["do"] == "paid":
                context.cancel_timer()

        def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> Iterator[Row]:
            yield {"unpaid": key}

    def minute(number: float) -> int:
        return int(number * 60_000_000)

    arrivals = [
        Arrival("paid after 30 minutes", minute(0), "ordered"),
        Arrival("paid after 31 minutes", minute(1), "ordered"),
        Arrival("never paid", minute(2), "ordered"),
        Arrival("paid after 31 minutes", minute(32), "paid"),
        Arrival("paid after 30 minutes", minute(30), "paid"),
    ]
    with TopologyDriver(topology(Unpaid(), lateness=minute(5))) as driver:
        driver.pipe_all("input", packed(arrivals))
        driver.complete()
        alerts = [(record.value["unpaid"], record.timestamp) for record in driver.read("out")]
    assert alerts == [("paid after 31 minutes", minute(31)), ("never paid", minute(32))]


class Noting(KeyedProcessor):
    """Tells the state that it finds, and sets it to the time if a row or the name of a timer says so."""

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> list[Row]:
        found = context.state.get()
        if row["do"] in ("note", "fail"):
            context.state.set(micros(context.time))
        if row["do"] == "fail":
            raise ValueError(row["do"])
        if row["do"] == "set":
            context.set_timer(timedelta(microseconds=row["delay"]), row["name"])
        if row["do"] == "wake":
            context.set_wall_clock_timer(EPOCH + timedelta(microseconds=row["delay"]), row["name"])
        return [{"found": found}]

    def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> list[Row]:
        found = context.state.get()
        if timer.name == "note":
            context.state.set(micros(context.time))
        return [{"found": found}]


def notes(driver: TopologyDriver) -> list[tuple[int, int | None]]:
    return [(record.timestamp, record.value["found"]) for record in driver.read("out")]


def noting(arrivals: Sequence[Arrival], ttl: int = 10, **options: Any) -> list[tuple[int, int | None]]:
    with TopologyDriver(topology(Noting(), lateness=0, ttl=ttl), **options) as driver:
        driver.pipe_all("input", packed(arrivals))
        driver.complete()
        return notes(driver)


def test_a_state_is_there_until_time_is_the_ttl_past_its_last_set() -> None:
    times = [Arrival("a", 5, "note"), Arrival("a", 14), Arrival("a", 15), Arrival("a", 16, "note"), Arrival("a", 25)]
    assert noting(times) == [(5, None), (14, 5), (15, None), (16, None), (25, 16)]
    assert noting(times, ttl=11) == [(5, None), (14, 5), (15, 5), (16, None), (25, 16)]


def test_a_timer_whose_state_has_expired_fires_and_finds_none() -> None:
    arrivals = [Arrival("a", 0, "note"), Arrival("a", 1, "set", "look", 8), Arrival("a", 1, "set", "note", 30)]
    arrivals += [Arrival("a", 40), Arrival("a", 41, "set", "", 5)]
    assert noting(arrivals) == [(0, None), (1, 0), (1, 0), (9, 0), (31, None), (40, 31), (41, None), (46, None)]


def test_what_other_keys_have_come_to_makes_no_difference_to_a_state() -> None:
    arrivals = [Arrival("a", 0, "note"), Arrival("b", 30, "note"), Arrival("a", 9), Arrival("a", 35, "note")]
    assert noting(arrivals) == [(0, None), (9, 0), (30, None), (35, None)]


def test_a_call_that_fails_leaves_the_state_with_the_time_that_it_had() -> None:
    arrivals = [Arrival("a", 0, "note"), Arrival("a", 8, "fail"), Arrival("b", 8, "fail"), Arrival("a", 9)]
    arrivals += [Arrival("a", 10), Arrival("b", 10)]
    assert noting(arrivals, on_error="skip") == [(0, None), (9, 0), (10, None), (10, None)]


def test_a_state_that_a_wall_clock_timer_sets_has_the_event_time_that_has_been_reached() -> None:
    with TopologyDriver(topology(Noting(), lateness=0, ttl=10)) as driver:
        driver.pipe_all("input", packed([Arrival("a", 20, "wake", "note", 5_000)]))
        driver.pipe_all("input", packed([Arrival("b", 25)]))
        driver.advance_wall_clock(5)
        driver.pipe_all("input", packed([Arrival("a", 34), Arrival("a", 35)]))
        assert notes(driver) == [(20, None), (25, None), (5_000, None), (34, 5_000), (35, None)]


def test_a_row_of_the_end_of_the_input_counts_as_at_the_time_of_the_last_timer_that_set_a_state() -> None:
    with TopologyDriver(topology(Noting(), lateness=0, ttl=10)) as driver:
        driver.pipe_all("input", packed([Arrival("a", 20, "set", "note", 30)]))
        driver.complete()
        driver.pipe_all("input", packed([Arrival("b", 25, "note"), Arrival("b", 26), Arrival("b", 59)]))
        assert notes(driver) == [(20, None), (50, None), (25, None), (26, 25), (59, 25)]


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_expired_states_are_removed_a_bounded_number_with_each_commit(
    backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(expiry, "LEAST_STEP", 4)
    with TopologyDriver(topology(Noting(), lateness=0, ttl=10), backend=backend, local_dir=tmp_path) as driver:
        driver.pipe_all("input", packed([Arrival(f"k{number:02}", 0, "note") for number in range(40)]))
        rows, left = driver.store("out-state").transaction, [40]
        for time in [1, 2, *range(100, 130)]:
            driver.pipe_all("input", packed([Arrival("z", time)]))
            left.append(sum(1 for _ in rows.scan(DATA, INDEX)))
        assert [one - other for one, other in pairwise(left)] == [0] * 3 + [4] * 10 + [0] * 19
        assert left[-1] == 0
        assert [row for row, _ in rows.scan(TIMERS)] == []
