"""A record for which a user's function fails: the error names it, or it alone has no effect, whichever operator it is.

Streams are compared with a run that never had the record, tables with one in which the row was deleted instead.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from millpond.errors import BackendError, SerdeError, UnreadableRowError, UserFunctionError
from millpond.processors import (
    Consumed,
    EmitStrategy,
    Grouped,
    Joined,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Processor,
    PunctuationType,
    Record,
    RecordProcessor,
    Repartitioned,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    TopologyDriver,
)
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.failures import DeadLetter
from millpond.stores.encoding.serdes import INT64, MSGPACK, Serde

Arrival = tuple[str, str, Any, int]
"""Topic, key, value and timestamp."""

Build = Callable[[StreamsBuilder], KStream | KTable]

BAD = -7
TEXT = "string"


def sound(*values: Any) -> Any:
    """Return the first argument, unless one of them is bad."""
    if BAD in values:
        raise ValueError("bad order")
    return values[0]


def joined(left: Any, right: Any) -> Any:
    return [sound(left, right), right]


def added(key: Any, value: Any, total: list[int]) -> list[int]:
    """Change the aggregate in place before it fails."""
    total.append(value)
    sound(value)
    return total


def merged(key: Any, left: list[int], right: list[int]) -> list[int]:
    return [*left, *right]


def stream(builder: StreamsBuilder, topic: str = "in") -> KStream:
    return builder.stream(topic, Consumed(TEXT, MSGPACK))


def table(builder: StreamsBuilder, topic: str = "in", *, versioned: bool = False) -> KTable:
    materialized = Materialized.versioned(history_retention=1000) if versioned else Materialized(name=f"{topic}-rows")
    return builder.table(topic, Consumed(TEXT, MSGPACK), materialized)


def windowed(
    builder: StreamsBuilder,
    windows: TimeWindows | SlidingWindows | SessionWindows,
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
) -> KStream:
    grouped = stream(builder).group_by_key()
    if isinstance(windows, SessionWindows):
        return grouped.windowed_by(windows).emit_strategy(emit).aggregate(list, added, merged).to_stream()
    return grouped.windowed_by(windows).emit_strategy(emit).aggregate(list, added).to_stream()


class Picky(Serde[Any]):
    """MessagePack that cannot write what is bad."""

    name = "picky"

    def serialize(self, value: Any) -> bytes:
        return MSGPACK.serialize(sound(value))

    def deserialize(self, data: bytes) -> Any:
        return MSGPACK.deserialize(data)


class Doubling(RecordProcessor):
    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.forward(key, value, timestamp)
        self.forward(key, sound(value), timestamp)


STREAMS: dict[str, Build] = {
    "filter": lambda b: stream(b).filter(lambda k, v: sound(v) is not None),
    "map": lambda b: stream(b).map(lambda k, v: (k, sound(v))),
    "map_values": lambda b: stream(b).map_values(sound),
    "flat_map": lambda b: stream(b).flat_map(lambda k, v: (pair for pair in [(k, v), (k, sound(v))])),
    "flat_map_values": lambda b: stream(b).flat_map_values(lambda v: [v, sound(v)]),
    "select_key": lambda b: stream(b).select_key(lambda k, v: f"{k}{sound(v)}").group_by_key().count().to_stream(),
    "peek": lambda b: stream(b).peek(lambda k, v: sound(v)),
    "split": lambda b: (
        stream(b).split(name="is-").branch(lambda k, v: sound(v) > 3, name="more").default_branch()["is-more"]
    ),
    "process": lambda b: stream(b).process(Doubling),
    "stream-table join": lambda b: stream(b).join(table(b, "rows"), joined, Joined(TEXT, MSGPACK)),
    "stream-table join with grace": lambda b: stream(b).left_join(
        table(b, "rows", versioned=True), joined, Joined(TEXT, MSGPACK, grace=2)
    ),
    "stream-stream join": lambda b: stream(b).join(
        stream(b, "others"), joined, windows=JoinWindows.of(5), joined=StreamJoined(TEXT, MSGPACK, MSGPACK)
    ),
    "stream-stream outer join": lambda b: stream(b).outer_join(
        stream(b, "others"), joined, windows=JoinWindows.of(2), joined=StreamJoined(TEXT, MSGPACK, MSGPACK)
    ),
    "group_by": lambda b: (
        stream(b).group_by(lambda k, v: str(sound(v) % 2), Grouped(TEXT, MSGPACK)).count().to_stream()
    ),
    "repartition": lambda b: stream(b).repartition(Repartitioned(TEXT, Picky())).filter(lambda k, v: v > 1),
    "repartition, key": lambda b: stream(b).map(lambda k, v: (v, k)).repartition(Repartitioned(Picky(), MSGPACK)),
    "reduce": lambda b: stream(b).group_by_key().reduce(lambda total, v: sound(v) + total).to_stream(),
    "aggregate": lambda b: stream(b).group_by_key().aggregate(list, added).to_stream(),
    "aggregate, cached": lambda b: (
        stream(b).group_by_key().aggregate(list, added, Materialized(name="lists").with_caching()).to_stream()
    ),
    "aggregate, versioned": lambda b: (
        stream(b).group_by_key().aggregate(list, added, Materialized.versioned(history_retention=1000)).to_stream()
    ),
    "windows": lambda b: windowed(b, TimeWindows(4, grace=2)),
    "hopping windows, final": lambda b: windowed(b, TimeWindows(4, advance=2, grace=0), EmitStrategy.ON_WINDOW_CLOSE),
    "sliding windows": lambda b: windowed(b, SlidingWindows(3, grace=2)),
    "sliding windows, final": lambda b: windowed(b, SlidingWindows(3, grace=2), EmitStrategy.ON_WINDOW_CLOSE),
    "sessions": lambda b: windowed(b, SessionWindows(1, grace=2)),
    "sessions, final": lambda b: windowed(b, SessionWindows(1, grace=2), EmitStrategy.ON_WINDOW_CLOSE),
    "a value that its store cannot keep": lambda b: (
        stream(b).map_values(lambda v: v if v != BAD else object()).group_by_key().reduce(lambda _, v: v).to_stream()
    ),
}
"""A record with the value ``BAD`` fails in each of these."""

TABLES: dict[str, Build] = {
    "filter": lambda b: table(b).filter(lambda k, v: sound(v) is not None),
    "map_values": lambda b: table(b).map_values(sound),
    "map_values, kept": lambda b: table(b).map_values(sound, Materialized(name="mapped", value_serde=MSGPACK)),
    "transform_values": lambda b: table(b).transform_values(lambda k, v: sound(v)),
    "map_values, read by a join": lambda b: stream(b, "others").join(
        table(b).map_values(sound), lambda one, other: [one, other], Joined(TEXT, MSGPACK)
    ),
    "map_values, before a group": lambda b: (
        table(b)
        .map_values(sound)
        .group_by(lambda k, v: ("all", v), Grouped(TEXT, MSGPACK))
        .reduce(lambda total, v: total + v, lambda total, v: total - v)
        .to_stream()
    ),
    "group_by": lambda b: (
        table(b)
        .group_by(lambda k, v: ("all", sound(v)), Grouped(TEXT, MSGPACK))
        .reduce(lambda total, v: total + v, lambda total, v: total - v)
        .to_stream()
    ),
    "group_by, value": lambda b: (
        table(b)
        .group_by(lambda k, v: ("all", v), Grouped(TEXT, Picky()))
        .reduce(lambda total, v: total + v, lambda total, v: total - v, Materialized(value_serde=MSGPACK))
        .to_stream()
    ),
    "reduce": lambda b: (
        table(b)
        .group_by(lambda k, v: ("all", v), Grouped(TEXT, MSGPACK))
        .reduce(lambda total, v: total + sound(v), lambda total, v: total - sound(v))
        .to_stream()
    ),
    "join": lambda b: table(b).join(table(b, "rows"), joined),
    "join, grouped": lambda b: (
        table(b)
        .join(table(b, "rows"), joined)
        .group_by(lambda k, v: ("all", v), Grouped(TEXT, MSGPACK))
        .aggregate(int, lambda k, v, n: n + v[0], lambda k, v, n: n - v[0])
        .to_stream()
    ),
    "join, complete history": lambda b: table(b, versioned=True).join(
        table(b, "rows", versioned=True), joined, history="complete"
    ),
    "foreign-key join, key": lambda b: table(b).join(
        table(b, "rows"), joined, foreign_key=lambda v: "abc"[sound(v) % 3]
    ),
    "foreign-key join, joiner": lambda b: table(b).join(table(b, "rows"), joined, foreign_key=lambda v: "abc"[v % 3]),
}
"""A row with the value ``BAD`` fails in each of these."""

ARRIVALS: list[list[Arrival]] = [
    [("rows", key, number, 0) for number, key in enumerate("abc")],
    [("in", "a", 1, 1), ("in", "b", 4, 1), ("in", "a", BAD, 2), ("in", "b", 5, 3), ("others", "a", 6, 3)],
    [("in", "a", 3, 3), ("in", "a", 8, 9), ("others", "b", 9, 9), ("in", "c", 2, 20)],
]
"""The records of three micro-batches, one of them bad."""


def micro_batch(arrivals: Iterable[Arrival], topics: Iterable[str]) -> dict[str, Batch]:
    """Return the records, without those of topics that nobody reads."""
    columns: dict[str, Batch] = {}
    for topic, *record in arrivals:
        if topic in topics:
            batch = columns.setdefault(topic, Batch([], [], []))
            for column, entry in zip((batch.keys, batch.values, batch.timestamps), record, strict=True):
                column.append(entry)
    return columns


class Outcome(NamedTuple):
    output: list[Record]
    left_out: dict[str, int]
    dead_letters: list[DeadLetter]


def run(build: Build, bad: Arrival | None, on_error: str = "fail") -> Outcome:
    """Return what comes out of all arrivals until completion, with ``bad`` in place of the bad one, or without."""
    builder = StreamsBuilder(key_serde=TEXT, value_serde=MSGPACK)
    made = build(builder)
    (made.to_stream() if isinstance(made, KTable) else made).to("out")
    with TopologyDriver(builder.build(), on_error=on_error) as driver:
        for part in ARRIVALS:
            arrivals = [bad if arrival[2] == BAD else arrival for arrival in part]
            driver.pipe_inputs(micro_batch(filter(None, arrivals), builder.build().sources))
        driver.complete()
        left_out = {name: count for name, count in driver.counters.items() if name.endswith(":dropped-user-error")}
        return Outcome(driver.read("out"), left_out, driver.dead_letters)


BAD_ONE: Arrival = ("in", "a", BAD, 2)


@pytest.mark.parametrize("operator", STREAMS)
def test_a_stream_goes_on_as_if_the_record_that_fails_had_never_been(operator: str) -> None:
    outcome = run(STREAMS[operator], BAD_ONE, "dead-letter")
    assert outcome.output == run(STREAMS[operator], None).output
    (letter,) = outcome.dead_letters
    assert outcome.left_out == {f"{letter.operator}:dropped-user-error": 1}
    assert "a" in (letter.key, letter.value)
    assert letter.task_id.endswith("_0")
    assert letter.timestamp == 2 or "timestamp 2" in letter.error


@pytest.mark.parametrize("operator", TABLES)
def test_a_table_has_no_row_for_a_value_that_fails(operator: str) -> None:
    outcome = run(TABLES[operator], BAD_ONE, "skip")
    assert outcome.output == run(TABLES[operator], ("in", "a", None, 2)).output
    assert sum(outcome.left_out.values()) >= 1
    assert outcome.dead_letters == []


@pytest.mark.parametrize("operator", [*STREAMS, *TABLES])
def test_by_default_the_error_names_the_record_and_nothing_comes_out(operator: str) -> None:
    with pytest.raises(UserFunctionError, match=r"^operator '.* of task ._0 \(reads '.*timestamp 2\b") as caught:
        run({**STREAMS, **TABLES}[operator], BAD_ONE)
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("operator", [*STREAMS, *TABLES])
def test_a_dead_letter_has_the_headers_of_the_record_that_fails(operator: str) -> None:
    builder = StreamsBuilder(key_serde=TEXT, value_serde=MSGPACK)
    made = {**STREAMS, **TABLES}[operator](builder)
    (made.to_stream() if isinstance(made, KTable) else made).to("out")
    topology = builder.build()
    arrivals = [arrival for part in ARRIVALS for arrival in part if arrival[0] in topology.sources]
    with TopologyDriver(topology, on_error="dead-letter") as driver:
        for topic, key, value, timestamp in arrivals:
            mark = b"bad" if value == BAD else b"good"
            driver.pipe(topic, key, value, timestamp, headers=[("mark", mark)])
        letter = driver.dead_letters[0]
        # The letter of a pair is the record that came later, which is not the bad one.
        assert letter.headers == (("mark", b"bad" if letter.timestamp == 2 else b"good"),)


def test_the_error_is_short_and_says_what_where_and_what_to_do() -> None:
    builder = StreamsBuilder(key_serde=TEXT, value_serde=MSGPACK)
    stream(builder).map_values(sound, name="pricing").to("out")
    with TopologyDriver(builder.build()) as driver, pytest.raises(UserFunctionError) as caught:
        driver.pipe_all("in", [("a", 1, 1), ("b", BAD, 2), ("c", 3, 3)])
    first, second = caught.value.sentence.splitlines()
    assert first == (
        "operator 'pricing' of task 0_0 (reads 'in'): ValueError: bad order (key 'b', timestamp 2, value -7)"
    )
    assert second.startswith(f"raised in sound, {__file__}:")
    assert second.endswith("leave such records out with on_error='skip' or 'dead-letter'")


def test_a_micro_batch_that_fails_leaves_no_dead_letters() -> None:
    builder = StreamsBuilder(key_serde=TEXT, value_serde=MSGPACK)
    stream(builder).map_values(sound).process(Unreliable).to("out")
    with TopologyDriver(builder.build(), on_error="dead-letter") as driver:
        with pytest.raises(UserFunctionError):
            driver.pipe_all("in", [("a", BAD, 1), ("b", 0, 2)])
        assert driver.dead_letters == []
        driver.pipe_all("in", [("a", BAD, 1), ("b", 1, 2)])
        assert [(letter.key, letter.value, letter.topics) for letter in driver.dead_letters] == [("a", BAD, ("in",))]


class Unreliable(Processor):
    """Forwards before it fails."""

    def process(self, batch: Batch) -> None:
        self.context.forward(batch)
        if 0 in batch.values:
            raise ValueError("zero")


def test_a_processor_that_promises_nothing_fails_the_job_whatever_the_policy() -> None:
    builder = StreamsBuilder(key_serde=TEXT, value_serde=MSGPACK)
    stream(builder).process(Unreliable, name="mine").to("out")
    expected = (
        r"^operator 'mine' .*ValueError: zero \(one of 2 records, the first with key 'a' and timestamp 1, the last"
    )
    with TopologyDriver(builder.build(), on_error="skip") as driver:
        with pytest.raises(UserFunctionError, match=expected) as caught:
            driver.pipe_all("in", [("a", 1, 1), ("b", 0, 2)])
        assert "give a RecordProcessor, or call context.declare(repeatable=True)" in str(caught.value)


def test_a_failure_of_the_storage_is_nobodys_record() -> None:
    class Broken(RecordProcessor):
        def process_record(self, key: Any, value: Any, timestamp: int) -> None:
            raise BackendError("the disk is gone")

    builder = StreamsBuilder(key_serde=TEXT, value_serde=MSGPACK)
    stream(builder).process(Broken).to("out")
    with TopologyDriver(builder.build(), on_error="skip") as driver, pytest.raises(BackendError, match="the disk"):
        driver.pipe_all("in", [("a", 1, 1)])


class Sending(RecordProcessor):
    """Forwards to two children in turn, and fails in between."""

    def open(self) -> None:
        self.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.punctuate)

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.forward(key, value, timestamp, to="left")
        self.forward(key, value, timestamp, to="right")
        self.forward(key, sound(value), timestamp, to="left")

    def punctuate(self, now: int) -> None:
        self.forward("tick", now, now, to="left")
        sound(BAD if now < 20 else 0)


def test_what_a_record_or_a_punctuation_that_fails_has_forwarded_is_taken_back() -> None:
    builder = StreamsBuilder(key_serde=TEXT, value_serde=MSGPACK)
    sending = stream(builder).process(Sending, name="sending")
    sending.map_values(lambda v: ["left", v], name="left").to("out")
    sending.map_values(lambda v: ["right", v], name="right").to("others")
    with TopologyDriver(builder.build(), on_error="skip") as driver:
        driver.pipe_all("in", [("a", 1, 1), ("b", BAD, 2), ("c", 3, 3)])
        driver.advance_wall_clock(10)
        assert [record.value for record in driver.read("out")] == [["left", v] for v in (1, 1, 3, 3)]
        assert [record.value for record in driver.read("others")] == [["right", 1], ["right", 3]]
        assert driver.counters == {"sending:dropped-user-error": 2}
        driver.advance_wall_clock(10)
        assert [record.value for record in driver.read("out")] == [["left", 20]]


@pytest.mark.parametrize("optimize", [False, True])
def test_a_self_join_leaves_out_the_pairs_that_fail(optimize: bool) -> None:
    def outcome(values: Iterable[int]) -> list[Any]:
        builder = StreamsBuilder(key_serde=TEXT, value_serde=MSGPACK, optimize=optimize)
        once = stream(builder)
        once.join(once, joined, windows=JoinWindows.of(10), joined=StreamJoined(TEXT, MSGPACK, MSGPACK)).to("out")
        with TopologyDriver(builder.build(), on_error="skip") as driver:
            driver.pipe_all("in", [("a", value, time) for time, value in enumerate(values) if value])
            return driver.read("out")

    assert outcome([1, BAD, 3]) == outcome([1, 0, 3])


class Rotting(Serde[int]):
    """Reads back what it wrote as long as nothing has rotted."""

    name = "rotting"
    rotten = False

    def serialize(self, value: int) -> bytes:
        return INT64.serialize(value)

    def deserialize(self, data: bytes) -> int:
        if self.rotten:
            raise SerdeError("these bytes are no number")
        return INT64.deserialize(data)


def test_a_stored_row_that_cannot_be_read_is_no_fault_of_the_record() -> None:
    serde, builder = Rotting(), StreamsBuilder()
    grouped = stream(builder).group_by_key(Grouped(TEXT, MSGPACK))
    grouped.aggregate(lambda: 0, lambda key, value, total: total + value, Materialized(value_serde=serde)).to_stream()
    with TopologyDriver(builder.build(), on_error="skip") as driver:
        driver.pipe_inputs({"in": Batch(["a"], [1], [1])})
        serde.rotten = True
        with pytest.raises(UnreadableRowError, match="holds a value that cannot be read: these bytes are no number"):
            driver.pipe_inputs({"in": Batch(["a"], [2], [2])})
