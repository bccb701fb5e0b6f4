"""The headers of each operator's results: those that Kafka Streams gives them (docs/headers.md)."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from millpond.processors import (
    EmitStrategy,
    Joined,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    PunctuationType,
    Record,
    RecordProcessor,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyDriver,
)
from millpond.processors.options.order import Order
from millpond.processors.runtime.batches.headers import as_headers, headers_from_bytes, headers_to_bytes
from tests.drawing import tries
from tests.processors.driving import text_topology
from tests.processors.random_topologies import OPERATORS, programs
from tests.processors.random_topologies import histories as random_histories
from tests.processors.test_batching import History, build, ordered

NONE = 0
"""Stands for no headers; the n-th record of a case has one that says n, from 1 on."""

Piped = tuple[str, str | None, str | None, int]
"""Topic, key, value and timestamp."""


def header(number: int) -> tuple[tuple[str, bytes | None], ...]:
    return (("n", str(number).encode()), ("n", None))


def numbers(records: Sequence[Record]) -> list[tuple[Any, int]]:
    """Return value and number of each record."""
    return [(record.value, int(record.headers[0][1] or b"") if record.headers else NONE) for record in records]


def results(describe: Callable[[StreamsBuilder], Any], piped: Sequence[Piped], **options: Any) -> list[tuple[Any, int]]:
    """Return what comes out of the records, each of which is a micro-batch."""
    with TopologyDriver(text_topology(describe, **options)) as driver:
        for number, (topic, key, value, timestamp) in enumerate(piped, 1):
            driver.pipe(topic, key, value, timestamp, headers=header(number))
        return numbers(driver.read("out"))


def short(*parts: Any) -> str:
    return "".join("-" if part is None else str(part) for part in parts)


def left(builder: StreamsBuilder) -> KStream:
    return builder.stream("left")


def counted(emit: EmitStrategy, windows: Any) -> Callable[[StreamsBuilder], Any]:
    def describe(builder: StreamsBuilder) -> Any:
        grouped = left(builder).group_by_key().windowed_by(windows).emit_strategy(emit)
        return grouped.count().to_stream().map(lambda key, value: (key.key, value))

    return describe


AT_ONCE, FINAL = EmitStrategy.ON_WINDOW_UPDATE, EmitStrategy.ON_WINDOW_CLOSE
AA: list[Piped] = [("left", "a", "x", 0), ("left", "a", "y", 1)]
LATER: list[Piped] = [*AA, ("left", "b", "z", 50)]
SIDES: list[Piped] = [("left", "a", "x", 0), ("right", "a", "p", 1), ("left", "a", "y", 2)]


def cases() -> dict[str, tuple[Callable[[StreamsBuilder], Any], list[Piped], list[tuple[Any, int]]]]:
    table = Materialized("store")
    versioned = Materialized.versioned(history_retention=100)
    within = JoinWindows.of(5)
    return {
        "filter": (lambda b: left(b).filter(lambda k, v: v == "y"), AA, [("y", 2)]),
        "map": (lambda b: left(b).map(lambda k, v: (v, k)), AA, [("a", 1), ("a", 2)]),
        "map_values": (lambda b: left(b).map_values(str.upper), AA, [("X", 1), ("Y", 2)]),
        "flat_map": (lambda b: left(b).flat_map(lambda k, v: [(k, 1), (k, 2)]), AA, [(1, 1), (2, 1), (1, 2), (2, 2)]),
        "flat_map_values": (lambda b: left(b).flat_map_values(lambda v: [v] * 2), AA, [("x", 1)] * 2 + [("y", 2)] * 2),
        "select_key": (lambda b: left(b).select_key(lambda k, v: v), AA, [("x", 1), ("y", 2)]),
        "peek": (lambda b: left(b).peek(lambda k, v: None), AA, [("x", 1), ("y", 2)]),
        "merge": (lambda b: left(b).merge(b.stream("right")), SIDES, [("x", 1), ("p", 2), ("y", 3)]),
        "repartition": (lambda b: left(b).select_key(lambda k, v: v).repartition(), AA, [("x", 1), ("y", 2)]),
        "table": (lambda b: b.table("left", materialized=table), AA, [("x", 1), ("y", 2)]),
        "reordered table": (
            lambda b: b.table("left", materialized=versioned, reorder_within=10),
            [*AA[::-1], ("left", "b", "z", 50), ("left", "b", "late", 3), ("left", "c", None, 65)],
            [("x", 2), ("y", 1), ("late", 4), ("z", 3)],
        ),
        "filtered table": (
            lambda b: b.table("left").filter(lambda k, v: v == "x", materialized=table),
            AA,
            [("x", 1), (None, 2)],
        ),
        "mapped table": (lambda b: b.table("left").map_values(str.upper), AA, [("X", 1), ("Y", 2)]),
        "count": (lambda b: left(b).group_by_key().count(), AA, [(1, 1), (2, 2)]),
        "group by": (lambda b: left(b).group_by(lambda k, v: "g").count(), AA, [(1, 1), (2, 2)]),
        "table count": (
            lambda b: b.table("left").group_by(lambda k, v: (v, v)).count(),
            AA,
            [(1, 1), (0, 2), (1, 2)],
        ),
        "tumbling": (counted(AT_ONCE, TimeWindows(10)), LATER, [(1, 1), (2, 2), (1, 3)]),
        "hopping": (counted(AT_ONCE, TimeWindows(10, advance=5)), AA[:1], [(1, 1)]),
        "tumbling, final": (counted(FINAL, TimeWindows(10)), LATER, [(2, 3)]),
        "sliding": (counted(AT_ONCE, SlidingWindows(10)), AA[:1], [(1, 1)]),
        "sliding, final": (counted(FINAL, SlidingWindows(10)), LATER, [(2, 3), (1, 3)]),
        "session": (counted(AT_ONCE, SessionWindows(10)), AA, [(1, NONE), (None, NONE), (2, NONE)]),
        "session, final": (counted(FINAL, SessionWindows(10)), LATER, [(2, 3)]),
        "suppress": (
            lambda b: b.table("left").suppress(Suppressed.until_time_limit(10)),
            [*LATER, ("left", "c", "c", 70)],
            [("y", 2), ("z", 3)],
        ),
        "stream join": (
            lambda b: left(b).join(b.stream("right"), short, windows=within),
            SIDES,
            [("xp", 2), ("yp", 3)],
        ),
        "outer join": (
            lambda b: left(b).outer_join(b.stream("right"), short, windows=within),
            [("left", "a", "x", 0), ("right", "b", "p", 1), ("left", "c", "y", 50)],
            [("x-", 3), ("-p", 3)],
        ),
        "self join": (
            lambda b: (lambda s: s.join(s, short, windows=within))(left(b)),
            AA,
            [("xx", 1), ("yx", 2), ("xy", 2), ("yy", 2)],
        ),
        "stream table join": (lambda b: left(b).left_join(b.table("right"), short), SIDES, [("x-", 1), ("yp", 3)]),
        "global join": (
            lambda b: left(b).join(b.global_table("right"), short, selector=lambda k, v: k),
            SIDES,
            [("yp", 3)],
        ),
        "join with grace": (
            lambda b: left(b).join(b.table("right", materialized=versioned), short, Joined(grace=5)),
            [("left", "a", "x", 8), ("right", "a", "p", 1), ("left", "a", "y", 20), ("left", "a", "late", 3)],
            [("xp", 1), ("latep", 4)],
        ),
        "table join": (
            lambda b: b.table("left").outer_join(b.table("right"), short),
            SIDES,
            [("x-", 1), ("xp", 2), ("yp", 3)],
        ),
        "foreign-key join": (
            lambda b: b.table("left").left_join(b.table("right"), short, foreign_key=lambda v: v),
            [("left", "a", "k", 0), ("right", "k", "p", 1), ("left", "b", "k", 2), ("right", "k", "q", 3)],
            [("k-", 1), ("kp", 2), ("kp", 3), ("kq", 4), ("kq", 4)],
        ),
    }


@pytest.mark.parametrize("name", cases())
def test_results_have_the_headers_that_kafka_streams_gives_them(name: str) -> None:
    describe, piped, expected = cases()[name]
    assert results(describe, piped) == expected
    assert sorted(results(describe, piped, optimize=True), key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    "windows",
    [None, TimeWindows(10), SlidingWindows(10), SessionWindows(10)],
    ids=["key", "time", "sliding", "session"],
)
def test_a_cached_update_has_the_headers_of_the_last_record(windows: Any) -> None:
    def describe(builder: StreamsBuilder) -> KTable:
        grouped = builder.stream("in").group_by_key()
        cached = Materialized("counts", caching=True)
        return (grouped if windows is None else grouped.windowed_by(windows)).count(cached)

    with TopologyDriver(text_topology(describe)) as driver:
        records = [Record("a", "x", 20 + number, header(number)) for number in (1, 2, 3)]
        driver.pipe_all("in", [*records, Record("b", "x", 24)])
        last = {record.key if windows is None else record.key.key: record for record in driver.read("out")}
    assert numbers([last["a"], last["b"]]) == [(3, 3), (1, NONE)]


class Tracing(RecordProcessor):
    """Forwards with the headers of the record, with others and without, and at each punctuation and the completion."""

    def open(self) -> None:
        self.schedule(10, PunctuationType.WALL_CLOCK_TIME, lambda now: self.forward("punctuation", self.headers, now))

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.forward(key, self.headers, timestamp)
        self.forward(key, "more", timestamp, headers=[*self.headers, ("trace", b"t")])
        self.forward(key, "none", timestamp, headers=())

    def process_completion(self) -> None:
        self.forward("completion", self.headers, 0)


def test_a_processor_of_ones_own_reads_and_sets_headers() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(Tracing).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("in", "a", "x", 1, headers=header(7))
        assert [(record.value, record.headers) for record in driver.read("out")] == [
            (header(7), header(7)),
            ("more", (*header(7), ("trace", b"t"))),
            ("none", ()),
        ]
        driver.advance_wall_clock(10)
        driver.complete()
        assert driver.read("out") == [("punctuation", (), 10), ("completion", (), 0)]


def _with_headers(history: History) -> History:
    count = iter(range(1, 1000))
    return [(topic, [Record(*record, headers=header(next(count))) for record in some]) for topic, some in history]


def _run(topology: Topology, history: History, *, one_by_one: bool = False) -> dict[str, Any]:
    with TopologyDriver(topology) as driver:
        for topic, records in history:
            for run in ([record] for record in records) if one_by_one else [records]:
                driver.pipe_all(topic, run)
        return {topic: driver.read(topic) for topic in topology.sinks}


def _without_headers(found: dict[str, list[Record]]) -> dict[str, Any]:
    return {topic: list(map(tuple, records)) for topic, records in found.items()}


@settings(max_examples=tries(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(programs(sorted(OPERATORS), most=4), programs(sorted(OPERATORS), most=2)), random_histories())
def test_headers_change_nothing_else_and_go_the_same_way_in_batches(program: Any, history: History) -> None:
    topology = build(program)
    assume(ordered(topology))
    headed = _with_headers(history)
    at_once = _run(topology, headed)
    assert at_once == _run(topology, headed, one_by_one=True)
    assert _without_headers(at_once) == _run(topology, history)
    in_time = build(program, Order.TIME)
    assert _without_headers(_run(in_time, headed)) == _run(in_time, history)


@pytest.mark.parametrize("bad", ["trace", ("trace",), (b"trace", b"x"), ("trace", "x")])
def test_what_is_no_header_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError, match="not a pair of a text and bytes or None"):
        Record("a", 1, 2, headers=[bad])


def test_a_record_with_other_parts_keeps_its_headers_unless_they_are_replaced() -> None:
    record = Record("a", 1, 2, header(7))
    assert record._replace(value=3) == Record("a", 3, 2, header(7))
    assert record._replace(headers=header(8)) == Record("a", 1, 2, header(8))
    assert record._replace(headers=()) == ("a", 1, 2)
    with pytest.raises((TypeError, ValueError), match="offset"):  # as Python 3.13, or one before it, says
        record._replace(offset=1)


@given(st.lists(st.tuples(st.text(), st.none() | st.binary())).map(as_headers), st.data())
def test_headers_survive_as_bytes_and_damage_is_noticed(headers: Any, data: Any) -> None:
    written = headers_to_bytes(headers)
    assert headers_from_bytes(written) == headers
    if written:
        cut = written[: data.draw(st.integers(1, len(written) - 1))]
        with suppress(ValueError):
            assert headers_from_bytes(cut) == headers[: len(headers_from_bytes(cut))]
