"""The options beyond Kafka Streams, most of them against an oracle that knows all records and tries by brute force.

Every history is random: few keys, many equal and out-of-order times, tombstones. The batches are random too, and their
records are taken in the order of arrival.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pytest

from millpond.errors import TopologyError
from millpond.processors import (
    Consumed,
    Joined,
    KTable,
    Materialized,
    Produced,
    StreamsBuilder,
    Topology,
    TopologyDriver,
)
from millpond.stores import LatePuts
from tests.drawing import tries

HISTORIES = tries(1000)
"""How many cases each option is tried on, at least; if a test comes in several kinds, each takes its share."""
KEYS = "ab"
LAST_TIME = 24


class Arrival(NamedTuple):
    """A record of a source topic, in order of arrival."""

    topic: str
    key: str
    value: str | None
    timestamp: int


def _builder() -> StreamsBuilder:
    return StreamsBuilder(value_serde="string", order="arrival")


def _joined(own: Any, found: Any) -> str:
    return f"{own}-{found}"


def _joined_columns(keys: Any, own: Any, found: Any) -> Any:
    return pa.array(map(_joined, own.to_pylist(), found.to_pylist()), pa.string())


def _match(joined: Joined, tolerance: int, known: Sequence[Arrival], own: Arrival) -> str | None:
    """Return what a record meets that may meet something newer, of all versions that are known."""
    versions = {one.timestamp: one.value for one in known if one.key == own.key}
    valid = max((time for time in versions if time < own.timestamp + joined.exact), default=None)
    later = [time for time, value in versions.items() if time > own.timestamp - joined.exact and value is not None]
    times = sorted(later)[:1]
    if joined.direction == "nearest" and valid is not None and versions[valid] is not None:
        times.insert(0, valid)
    close = [time for time in times if abs(time - own.timestamp) <= tolerance]
    return versions[min(close, key=lambda time: abs(time - own.timestamp))] if close else None


def _history(seed: int, topics: Sequence[str], *, tombstones: bool = True) -> list[Arrival]:
    rng = random.Random(seed)
    return [
        Arrival(
            rng.choice(topics),
            rng.choice(KEYS),
            None if tombstones and rng.random() < 0.25 else f"v{i}",
            rng.randrange(LAST_TIME),
        )
        for i in range(rng.randrange(1, 25))
    ]


def _pipe(driver: TopologyDriver, seed: int, arrivals: Sequence[Arrival]) -> None:
    """Pipe records in batches of random sizes, each of one topic."""
    rng = random.Random(-seed)
    start = 0
    while start < len(arrivals):
        topic, stop = arrivals[start].topic, start + rng.randrange(1, 6)
        batch = []
        while start < min(stop, len(arrivals)) and arrivals[start].topic == topic:
            batch.append(arrivals[start][1:])
            start += 1
        driver.pipe_all(topic, batch)


def _as_of(arrivals: Iterable[Arrival], key: str, time: int) -> str | None:
    """Return the value that was valid at ``time``: the last arrival with the greatest timestamp up to it."""
    known = [arrival for arrival in arrivals if arrival.key == key and arrival.timestamp <= time]
    return max(known, key=lambda arrival: arrival.timestamp).value if known else None


def _as_of_latest_arrival(arrivals: Sequence[Arrival], key: str, time: int) -> str | None:
    return _as_of(reversed(arrivals), key, time)


class TestCompleteHistoryOfTableTableJoins:
    """Taken as versioned puts, the results are right for every key at every time, after every record."""

    @staticmethod
    def _topology(kind: str, mapped: bool, stored: bool, retention: int) -> Topology:
        builder = _builder()
        a, b = (builder.table(t, materialized=Materialized.versioned(history_retention=retention)) for t in "ab")
        if mapped:
            b = b.filter(lambda key, value: not value.endswith("3")).map_values(str.upper)
        join = {"inner": KTable.join, "left": KTable.left_join, "outer": KTable.outer_join}[kind]
        store = Materialized.versioned("joined", history_retention=retention, value_serde="string") if stored else None
        join(a, b, lambda left, right: f"{left}-{right}", store, history="complete").to("out", Produced(None, "string"))
        return builder.build()

    @staticmethod
    def _expected(kind: str, mapped: bool, arrivals: Sequence[Arrival], key: str, time: int) -> str | None:
        left = _as_of_latest_arrival([arrival for arrival in arrivals if arrival.topic == "a"], key, time)
        right = _as_of_latest_arrival([arrival for arrival in arrivals if arrival.topic == "b"], key, time)
        if mapped and right is not None:
            right = None if right.endswith("3") else right.upper()
        missing = {
            "inner": left is None or right is None,
            "left": left is None,
            "outer": left is None and right is None,
        }
        return None if missing[kind] else f"{left}-{right}"

    @pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped"])
    @pytest.mark.parametrize("kind", ["inner", "left", "outer"])
    def test_results_are_right_at_all_times(self, kind: str, mapped: bool) -> None:
        topology = self._topology(kind, mapped, False, 1000)
        for seed in range(HISTORIES // 6 + 1):
            arrivals = _history(seed, "ab")
            results: dict[tuple[str, int], str | None] = {}
            with TopologyDriver(topology) as driver:
                for i, (topic, key, value, timestamp) in enumerate(arrivals):
                    driver.pipe(topic, key, value, timestamp)
                    results.update({(row.key, row.timestamp): row.value for row in driver.read("out")})
                    self._compare(kind, mapped, seed, arrivals[: i + 1], results)

    def _compare(
        self,
        kind: str,
        mapped: bool,
        seed: int,
        arrivals: Sequence[Arrival],
        results: dict[tuple[str, int], str | None],
    ) -> None:
        for key in KEYS:
            value = None
            for time in range(LAST_TIME):
                value = results.get((key, time), value)
                assert value == self._expected(kind, mapped, arrivals, key, time), (seed, len(arrivals), key, time)

    @pytest.mark.parametrize("kind", ["inner", "left", "outer"])
    def test_a_versioned_store_of_the_results_can_be_read_at_all_times_it_keeps(self, kind: str) -> None:
        retention = 8
        topology = self._topology(kind, False, True, retention)
        for seed in range(HISTORIES // 3):
            arrivals = _history(seed, "ab")
            with TopologyDriver(topology) as driver:
                _pipe(driver, seed, arrivals)
                taken = _within_grace(arrivals, retention)
                newest = max((arrival.timestamp for arrival in taken), default=0)
                for key in KEYS:
                    for time in range(newest - retention, LAST_TIME):
                        found = driver.store("joined").get_value(key, as_of=time)
                        assert found == self._expected(kind, False, taken, key, time), (seed, key, time)


def _within_grace(arrivals: Sequence[Arrival], retention: int) -> list[Arrival]:
    """Return the records that versioned stores of one topic each accept."""
    newest: dict[str, int] = {}
    taken = []
    for arrival in arrivals:
        newest[arrival.topic] = max(arrival.timestamp, newest.get(arrival.topic, arrival.timestamp))
        if arrival.timestamp >= newest[arrival.topic] - retention:
            taken.append(arrival)
    return taken


def _released(arrivals: Sequence[Arrival], grace: int) -> list[Arrival]:
    """Return the order in which a grace period releases records, by looking at all of them anew after each."""
    waiting: list[tuple[int, bytes, int, Arrival]] = []
    gone: list[Arrival] = []
    stream_time: int | None = None
    for i, arrival in enumerate(arrivals):
        if stream_time is not None and arrival.timestamp < stream_time - grace:
            gone.append(arrival)
            continue
        stream_time = arrival.timestamp if stream_time is None else max(stream_time, arrival.timestamp)
        waiting.append((arrival.timestamp, arrival.key.encode(), i, arrival))
        ready = sorted(entry for entry in waiting if entry[0] <= stream_time - grace)
        gone.extend(entry[3] for entry in ready)
        waiting = [entry for entry in waiting if entry not in ready]
    return gone


class TestGraceOfTableSources:
    """Records reach the table in time order, unless they are later than the grace period."""

    @pytest.mark.parametrize("restart", [False, True], ids=["in one go", "with a restart"])
    def test_records_reach_the_table_as_the_oracle_lets_them_go(
        self, restart: bool, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        for seed in range(tries(100) if restart else HISTORIES):
            grace = seed % 9
            arrivals = _history(seed, ["t"])
            builder = _builder()
            builder.table("t", materialized=Materialized("table"), reorder_within=grace).to("out")
            topology = builder.build()
            output: list[Any] = []
            middle = len(arrivals) // 2
            directory = tmp_path_factory.mktemp("state") if restart else None
            for part in (arrivals[:middle], arrivals[middle:]) if restart else (arrivals,):
                with TopologyDriver(topology, backend="lmdb" if restart else "memory", local_dir=directory) as driver:
                    _pipe(driver, seed, part)
                    output.extend(driver.read("out"))
                    rows = {key: (row.value, row.timestamp) for key, row in driver.store("table").scan()}
            expected = _released(arrivals, grace)
            assert output == [arrival[1:] for arrival in expected], seed
            last = {arrival.key: (arrival.value, arrival.timestamp) for arrival in expected}
            assert rows == {key: row for key, row in last.items() if row[0] is not None}, seed

    def test_a_long_enough_grace_makes_an_unversioned_table_as_right_as_a_versioned_one(self) -> None:
        for seed in range(HISTORIES // 3):
            arrivals = [*_history(seed, ["t"]), *(Arrival("t", key, f"end-{key}", 1000) for key in (*KEYS, "z"))]
            builder = _builder()
            builder.table("t", materialized=Materialized("table"), reorder_within=LAST_TIME).to("out")
            with TopologyDriver(builder.build()) as driver:
                _pipe(driver, seed, arrivals)
                rows = {key: row.value for key, row in driver.store("table").scan()}
            expected = {key: _as_of_latest_arrival(arrivals, key, LAST_TIME) for key in KEYS}
            assert rows == {key: value for key, value in expected.items() if value is not None}, seed


class TestGraceOfStreamTableJoins:
    """A record is joined when the grace period releases it, with what the table then knows of the record's time."""

    @pytest.mark.parametrize("left", [False, True], ids=["inner", "left"])
    def test_results_are_those_of_the_oracle(self, left: bool) -> None:
        for seed in range(HISTORIES // 2):
            grace = seed % 9
            arrivals = _history(seed, "st")
            builder = _builder()
            table = builder.table("t", materialized=Materialized.versioned(history_retention=1000))
            stream = builder.stream("s")
            join = stream.left_join if left else stream.join
            join(table, lambda own, found: f"{own}-{found}", Joined(grace=grace)).to("out", Produced(None, "string"))
            with TopologyDriver(builder.build()) as driver:
                _pipe(driver, seed, arrivals)
                assert driver.read("out") == self._expected(arrivals, grace, left), seed

    @staticmethod
    def _expected(arrivals: Sequence[Arrival], grace: int, left: bool) -> list[tuple[str, str, int]]:
        expected: list[tuple[str, str, int]] = []
        done = 0
        for i in range(1, len(arrivals) + 1):
            known = [arrival for arrival in arrivals[:i] if arrival.topic == "t"]
            stream = [arrival for arrival in arrivals[:i] if arrival.topic == "s" and arrival.value is not None]
            released = _released(stream, grace)
            for arrival in released[done:]:
                found = _as_of_latest_arrival(known, arrival.key, arrival.timestamp)
                if left or found is not None:
                    expected.append((arrival.key, f"{arrival.value}-{found}", arrival.timestamp))
            done = len(released)
        return expected

    @pytest.mark.parametrize("vectorized", [False, True])
    @pytest.mark.parametrize("exact", [True, False])
    @pytest.mark.parametrize("direction", ["forward", "nearest"])
    def test_a_record_waits_for_as_much_longer_as_what_it_meets_may_be_newer(
        self, direction: Literal["forward", "nearest"], exact: bool, vectorized: bool
    ) -> None:
        for seed in range(HISTORIES // 16):
            grace, tolerance = seed % 4, seed % 7
            arrivals = _history(seed, "st")
            builder = _builder()
            table = builder.table("t", materialized=Materialized.versioned(history_retention=1000))
            joined = Joined(grace=grace, tolerance=tolerance, exact=exact, direction=direction)
            stream = builder.stream("s")
            results = stream.left_join(table, _joined_columns if vectorized else _joined, joined, vectorized=vectorized)
            results.to("out", Produced(None, "string"))
            with TopologyDriver(builder.build()) as driver:
                _pipe(driver, seed, arrivals)
                found = driver.read("out")
            expected = self._met(arrivals, grace + tolerance, partial(_match, joined, tolerance))
            assert found == expected, seed

    @staticmethod
    def _met(
        arrivals: Sequence[Arrival], wait: int, match: Callable[[Sequence[Arrival], Arrival], str | None]
    ) -> list[tuple[str, str, int]]:
        """Return each record of the stream, once it has waited, with what it meets of what has arrived by then."""
        met: list[tuple[str, str, int]] = []
        for i in range(1, len(arrivals) + 1):
            known = [arrival for arrival in arrivals[:i] if arrival.topic == "t"]
            stream = [arrival for arrival in arrivals[:i] if arrival.topic == "s" and arrival.value is not None]
            released = _released(stream, wait)
            met += [(own.key, _joined(own.value, match(known, own)), own.timestamp) for own in released[len(met) :]]
        return met

    def test_what_a_record_may_meet_later_is_in_the_history(self) -> None:
        builder = _builder()
        table = builder.table("t", materialized=Materialized.versioned(history_retention=14))
        joined = Joined(grace=5, tolerance=10, direction="forward")
        with pytest.raises(TopologyError, match=r"has a tolerance and a grace period of 15 ms, but .* only 14 ms of"):
            builder.stream("s").join(table, _joined, joined)

    @pytest.mark.parametrize("mapped", [False, True])
    def test_what_a_filter_leaves_out_of_a_table_is_passed_over_like_a_delete(self, mapped: bool) -> None:
        builder = _builder()
        table = builder.table("t", materialized=Materialized.versioned(history_retention=100))
        table = table.filter(lambda key, value: value != "hidden")
        if mapped:
            table = table.map_values(str.upper)
        joined = Joined(grace=0, tolerance=20, direction="forward")
        builder.stream("s").left_join(table, _joined, joined).to("out", Produced(None, "string"))
        with TopologyDriver(builder.build()) as driver:
            driver.pipe_all("t", [("a", "hidden", 12), ("a", None, 14), ("a", "next", 16), ("a", "after", 18)])
            driver.pipe_all("s", [("a", "one", 10), ("b", "two", 11), ("b", "end", 40)])
            found = "NEXT" if mapped else "next"
            assert driver.read("out") == [("a", f"one-{found}", 10), ("b", "two-None", 11)]

    def test_a_record_without_a_key_waits_like_any_other(self) -> None:
        builder = _builder()
        table = builder.table("t", materialized=Materialized.versioned(history_retention=1000))
        joined = builder.stream("s").left_join(table, lambda own, found: f"{own}-{found}", Joined(grace=10))
        joined.to("out", Produced(None, "string"))
        with TopologyDriver(builder.build()) as driver:
            driver.pipe_all("s", [(None, "one", 5), ("a", "two", 3), (None, "three", 15)])
            assert driver.read("out") == [("a", "two-None", 3), (None, "one-None", 5)]

    def test_records_wait_in_the_form_of_their_own_serdes(self) -> None:
        builder = _builder()
        table = builder.table("t", materialized=Materialized.versioned(history_retention=1000))
        numbers = builder.stream("s", Consumed("string", "int64"))
        numbers.join(table, lambda own, found: f"{own + 1}-{found}", Joined(grace=10)).to(
            "out", Produced(None, "string")
        )
        with TopologyDriver(builder.build()) as driver:
            driver.pipe("s", "a", 41, 5)
            driver.pipe("t", "a", "late", 4)
            driver.pipe("s", "a", 0, 15)
            assert driver.read("out") == [("a", "42-late", 5)]

    def test_a_late_record_is_joined_at_once_and_counted(self) -> None:
        builder = _builder()
        table = builder.table("t", materialized=Materialized.versioned(history_retention=1000))
        joined = builder.stream("s").left_join(table, lambda own, found: f"{own}-{found}", Joined(grace=10))
        joined.to("out", Produced(None, "string"))
        with TopologyDriver(builder.build()) as driver:
            driver.pipe_all("s", [("a", "one", 100), ("a", "late", 89), ("a", "in time", 90)])
            assert driver.read("out") == [("a", "late-None", 89), ("a", "in time-None", 90)]
            assert [n for what, n in driver.counters.items() if what.endswith(":passed-late")] == [1]

    @pytest.mark.parametrize(("within", "found"), [(False, "None"), (True, "old")])
    @pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one batch"])
    def test_a_record_that_waits_is_joined_before_the_table_forgets_if_so_wanted(
        self, within: bool, found: str, together: bool
    ) -> None:
        builder = StreamsBuilder(value_serde="string", order="arrival")
        table = builder.table("t", materialized=Materialized.versioned(history_retention=20))
        joined = Joined(grace=10, within_history=within)
        builder.stream("s").left_join(table, "{}-{}".format, joined).to("out", Produced(None, "string"))
        records = [("a", "old", 0), ("a", "new", 8), ("b", "other", 25), ("b", "far", 100), ("a", "newest", 101)]
        with TopologyDriver(builder.build()) as driver:
            driver.pipe_all("t", records[:2])
            driver.pipe_all("s", [("a", "waits", 4), ("a", "waits", 5)])
            for some in [records[2:]] if together else [[one] for one in records[2:]]:
                driver.pipe_all("t", some)
            driver.pipe("s", "a", "late", 105)
            driver.pipe("s", "a", "end", 115)
            results = [("a", f"waits-{found}", 4), ("a", f"waits-{found}", 5), ("a", "late-newest", 105)]
            assert driver.read("out") == results

    def test_a_grace_needs_a_versioned_table_with_enough_history(self) -> None:
        builder = _builder()
        stream = builder.stream("s")
        with pytest.raises(TopologyError, match="not versioned"):
            stream.join(builder.table("plain"), max, Joined(grace=10))
        short = builder.table("short", materialized=Materialized.versioned(history_retention=9))
        with pytest.raises(TopologyError, match="only 9 ms of history"):
            stream.join(short.map_values(str), max, Joined(grace=10))
        with pytest.raises(TopologyError, match="global table"):
            stream.join(builder.global_table("g"), max, Joined(grace=10))


@pytest.mark.parametrize("materialized", [Materialized("kept"), Materialized.versioned("kept", history_retention=100)])
def test_only_changes_come_out_of_a_table_that_is_asked_for_them(materialized: Materialized) -> None:
    builder = _builder()
    table = builder.table("in", materialized=materialized).filter(lambda key, value: value != "hidden")
    table.to_stream(changes_only=True).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("a", "x", 1), ("a", "x", 2), ("a", "hidden", 3), ("a", None, 4), ("a", "y", 5)])
        assert [(value, timestamp) for _, value, timestamp in driver.read("out")] == [("x", 1), (None, 3), ("y", 5)]


def test_what_comes_too_late_to_be_the_latest_is_no_change_of_a_versioned_table() -> None:
    builder = _builder()
    table = builder.table("in", materialized=Materialized.versioned(history_retention=100))
    table.to_stream(changes_only=True).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("a", "new", 10), ("a", "old", 5), ("a", None, 20), ("a", "between", 15)])
        assert [(value, timestamp) for _, value, timestamp in driver.read("out")] == [("new", 10), (None, 20)]


@pytest.mark.parametrize(("late_puts", "found", "late"), [(LatePuts.REFUSED, None, 2), (LatePuts.VALID, "old", 1)])
def test_a_late_update_is_put_if_it_is_valid_within_the_history(
    late_puts: LatePuts, found: str | None, late: int
) -> None:
    builder = _builder()
    kept = Materialized.versioned(history_retention=10, late_puts=late_puts)
    builder.stream("stream").left_join(builder.table("table", materialized=kept), lambda _, other: other).to("out")
    with TopologyDriver(builder.build()) as driver:
        for key, value, time in (("b", "b", 20), ("c", "c", 100), ("a", "old", -1), ("b", "replaced", 5)):
            driver.pipe("table", key, value, time)
        driver.pipe_all("stream", [(key, "one", 100) for key in "abc"])
        assert [record.value for record in driver.read("out")] == [found, "b", "c"]
        assert sum(n for name, n in driver.counters.items() if name.endswith(":dropped-expired")) == late
