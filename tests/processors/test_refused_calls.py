"""Topologies that are refused, each followed by what the message advises, which is then built."""

import operator
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.processors import (
    Consumed,
    CumulativeWindows,
    Grouped,
    Joined,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Produced,
    PunctuationType,
    RecordProcessor,
    Repartitioned,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyBuilder,
    TopologyDriver,
)
from millpond.processors.distribution.plan import make_plan
from millpond.processors.verbs import KeyContext, KeyedProcessor, Timer
from millpond.processors.verbs.apply import apply_topology
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from tests.refusing import Refused

TEXT = Consumed("string", "string")
NUMBER = pa.int64()
NUMBERS = Consumed("string", "int64")
COUNTS = Produced(schema="key string, value long")
NAMES = StoreSpec("names", StoreKind.KEY_VALUE, STRING, STRING)
TOTALS = StoreSpec("totals", StoreKind.KEY_VALUE, STRING, INT64)


class PassOn(RecordProcessor):
    """Each record as it comes; what is asked for is asked of the first of them."""

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.forward(key, value, timestamp)


class Stored(PassOn):
    def open(self) -> None:
        self.context.store("totals")


class Late(PassOn):
    """Schedules by stream time when the first record comes."""

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.schedule(10, PunctuationType.STREAM_TIME, lambda time: None)


class Early(PassOn):
    """Schedules by stream time before."""

    def open(self) -> None:
        self.schedule(10, PunctuationType.STREAM_TIME, lambda time: None)


class Untimed(PassOn):
    """Asks for the stream time."""

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        assert self.context.stream_time == timestamp


class Timed(Untimed):
    """Asks for the stream time, and takes one record after the other."""

    def open(self) -> None:
        self.context.declare(record_by_record=True)


class OnceTimed(Timed):
    """Asks as processors did in earlier releases."""

    record_by_record = True


class LateDeclaring(PassOn):
    """Declares something when the first record comes."""

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.context.declare(record_by_record=True)


class Naming(PassOn):
    """Puts each record into the store of names."""

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.context.store("names").put(key, value)


class Calls:
    """Builders that nobody has used, with values that are text, or of which nobody knows how to write them."""

    def __init__(self) -> None:
        self.builder = StreamsBuilder(value_serde="string")
        self.bare = StreamsBuilder(value_serde=None)
        self.nodes = TopologyBuilder(value_serde="string")
        self.nodes.add_source("source", "in")
        self.nodes.add_processor("pass", PassOn, "source")
        self.nodes.add_sink("sink", "out", "pass")

    def stream(self, topic: str = "in", consumed: Consumed | None = None) -> KStream:
        return self.builder.stream(topic, consumed)

    def table(self, topic: str = "t", consumed: Consumed | None = None, **given: Any) -> KTable:
        return self.builder.table(topic, consumed, **given)

    def versioned(self, topic: str = "v", retention: int = 100, **given: Any) -> KTable:
        return self.table(topic, materialized=Materialized.versioned(history_retention=retention, **given))

    def nameless(self, topic: str = "n") -> KStream:
        """Return a stream whose values nobody knows how to write."""
        names = self.bare.table(f"{topic}-names", TEXT)
        return self.bare.stream(topic, TEXT).join(names, max)

    def nameless_table(self, materialized: Materialized | None = None) -> KTable:
        """Return a table whose values nobody knows how to write."""
        return self.bare.table("left", TEXT).join(self.bare.table("right", TEXT), max, materialized)

    def split(self) -> Any:
        return self.stream().split(name="parts-")

    def counted(self, store: Materialized) -> KTable:
        return self.stream().group_by_key().windowed_by(TimeWindows(10, grace=5)).count(store)

    def plan(self, sink: str | None) -> object:
        """Return the plan of a topology with two sinks."""
        stream = self.stream()
        for topic in ("all", "some"):
            stream.to(topic)
        return make_plan(self.builder.build(), sink, 2)

    def named_again(self, end: str | None) -> Topology:
        """Return names for ids, and names for those: by one query, or by the one of two that writes this topic."""
        builder = StreamsBuilder(value_serde="string")
        names = builder.table("names")
        if end != "out":
            stream = builder.stream("in").left_join(names, lambda _, name: name).select_key(lambda _, name: name)
        if end == "named":
            stream.to("named")
            return builder.build()
        again = stream if end is None else builder.stream("named")
        again.left_join(names, "{}: {}".format).to("out")
        return builder.build()

    def check_named_again(self) -> None:
        names, ids = [("ann", "bea", 1), ("bea", "cid", 1)], [("ann", "x", 2), ("bea", "y", 3)]
        found: dict[str | None, TopologyDriver] = {}
        with ExitStack() as drivers:
            for end in (None, "named", "out"):
                driver = found[end] = drivers.enter_context(TopologyDriver(self.named_again(end)))
                driver.pipe_all("names", names)
            for end in (None, "named"):
                found[end].pipe_all("in", ids)
            found["out"].pipe_all(
                "named", [(one.key, one.value, one.timestamp) for one in found["named"].read("named")]
            )
            values = [record.value for record in found["out"].read("out")]
            assert values == [record.value for record in found[None].read("out")] == ["bea: cid", "cid: None"]

    def counts(self, *sinks: str) -> object:
        """Return the plan of two counts that go to these sinks."""
        for topic, sink in zip(("left", "right"), sinks, strict=True):
            self.stream(topic).group_by_key().count().to(sink, COUNTS)
        return [make_plan(self.builder.build(), sink, 2) for sink in sinks]


def by_value(key: Any, value: Any) -> Any:
    return (value, value)


def chosen(key: Any, value: Any, context: Any) -> str:
    return "a"


def built(builder: StreamsBuilder | TopologyBuilder) -> Topology:
    """Build a topology, and have one record go through it."""
    topology = builder.build()
    with TopologyDriver(topology) as driver:
        driver.pipe("in", "a", "x", 1)
    return topology


def processed(calls: Calls, supplier: type[PassOn], *stores: StoreSpec) -> None:
    calls.stream().process(supplier, stores=stores, name="mine").to("out")
    built(calls.builder)


class Ruled(KeyedProcessor):
    """Does something with its context for each row."""

    def __init__(self, act: Callable[[KeyContext], object]) -> None:
        self.act = act

    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> None:
        self.act(context)


class Ringing(Ruled):
    """Has timers."""

    def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> None:
        assert timer


def ruled(rule: type[Ruled], act: Callable[[KeyContext], object], type_: Any = NUMBER) -> None:
    """Have one row with a null of a type come to a processor, and all of its timers fire."""
    keys, rows = pa.schema([("k", pa.string())]), pa.schema([("n", type_)])
    key, row = KeyCodec(keys), RowCodec(Schemas.first(rows))
    with TopologyDriver(apply_topology("out", rule(act), key, row, lateness=0)) as driver:
        packed = row.pack(pa.table({"n": pa.nulls(1, type_)}))
        driver.pipe("input", key.pack(pa.table({"k": ["a"]}))[0], packed[0], 1)
        driver.complete()


JOINS = [
    Refused(
        "can be joined with a table, not with ",
        lambda calls: calls.table().join(calls.stream(), max),
        lambda calls: calls.stream().join(calls.table(), max),
        lambda calls: calls.table().join(calls.stream().to_table(), max),
    ),
    Refused(
        "; give 'latest' or 'complete'",
        lambda calls: calls.versioned().join(calls.versioned("w"), max, history="all"),
        lambda calls: calls.versioned().join(calls.versioned("w"), max, history="latest"),
        lambda calls: calls.versioned().join(calls.versioned("w"), max, history="complete"),
    ),
    Refused(
        "the foreign-key join of ",
        lambda calls: calls.versioned().join(calls.versioned("w"), max, foreign_key=str, history="complete"),
        lambda calls: calls.versioned().join(calls.versioned("w"), max, foreign_key=str),
    ),
    Refused(
        "streams of different builders cannot be cogrouped",
        lambda calls: (
            calls.stream().group_by_key().cogroup(max).cogroup(calls.bare.stream("other").group_by_key(), max)
        ),
        lambda calls: calls.stream().group_by_key().cogroup(max).cogroup(calls.stream("other").group_by_key(), max),
    ),
    Refused(
        "and so from two topologies; make both with one StreamsBuilder",
        lambda calls: calls.table().join(calls.bare.table("other", TEXT), max),
        lambda calls: calls.table().join(calls.table("other", TEXT), max),
    ),
    Refused(
        "so that equal keys would go to different tasks",
        lambda calls: calls.stream("numbers", Consumed("int64")).join(calls.table(), max),
        lambda calls: calls.stream("numbers", Consumed("string")).join(calls.table(), max),
        lambda calls: (
            calls.stream("numbers", Consumed("int64"))
            .map(lambda key, value: (str(key), value), key_serde="string")
            .join(calls.table(), max)
        ),
    ),
    Refused(
        "cannot take part in a foreign-key join: the ",
        lambda calls: calls.nameless_table().join(calls.bare.table("other", TEXT), max, foreign_key=str),
        lambda calls: calls.nameless_table(Materialized(value_serde="string")).join(
            calls.bare.table("other", TEXT), max, Materialized(value_serde="string"), foreign_key=str
        ),
    ),
    Refused(
        "looks up the record's key: a selector needs a global table",
        lambda calls: calls.stream().join(calls.table(), max, selector=by_value),
        lambda calls: calls.stream().join(calls.builder.global_table("t"), max, selector=by_value),
    ),
    Refused(
        "is with a table: it has no windows, takes Joined",
        lambda calls: calls.stream().join(calls.table(), max, windows=JoinWindows.of(10)),
        lambda calls: calls.stream().join(calls.table(), max, Joined()),
        lambda calls: calls.stream().left_join(calls.table(), max),
    ),
    Refused(
        "is between streams: it needs windows=JoinWindows(...)",
        lambda calls: calls.stream().join(calls.stream("other"), max),
        lambda calls: calls.stream().join(
            calls.stream("other"), max, StreamJoined(value_serde="string"), windows=JoinWindows(5, 5)
        ),
    ),
    Refused(
        "keeps records, but has no ",
        lambda calls: calls.bare.stream("a", TEXT).join(calls.bare.stream("b"), max, windows=JoinWindows.of(5)),
        lambda calls: calls.bare.stream("a", TEXT).join(
            calls.bare.stream("b"), max, StreamJoined(other_value_serde="string"), windows=JoinWindows.of(5)
        ),
    ),
    Refused(
        "has a joiner of columns, but ",
        lambda calls: calls.stream("a", Consumed(value_serde="msgpack")).join(
            calls.stream("b", NUMBERS), max, windows=JoinWindows.of(5), vectorized=True
        ),
        lambda calls: calls.stream("a", NUMBERS).join(
            calls.stream("b", NUMBERS), max, windows=JoinWindows.of(5), vectorized=True
        ),
        lambda calls: calls.stream("a", Consumed(value_serde="msgpack")).join(
            calls.stream("b", NUMBERS), max, windows=JoinWindows.of(5)
        ),
    ),
    Refused(
        "has a grace period, but its table ",
        lambda calls: calls.stream().join(calls.table(), max, Joined(grace=10)),
        lambda calls: calls.stream().join(calls.versioned(), max, Joined(grace=10)),
    ),
    Refused(
        "make the history retention at least as long as that",
        lambda calls: calls.stream().join(calls.versioned(retention=9), max, Joined(grace=10)),
        lambda calls: calls.stream().join(calls.versioned(retention=10), max, Joined(grace=10)),
    ),
    Refused(
        "cannot have a grace period: a global table has no history",
        lambda calls: calls.stream().join(calls.builder.global_table("g"), max, Joined(grace=10)),
        lambda calls: calls.stream().join(calls.versioned(), max, Joined(grace=10)),
    ),
    Refused(
        "otherwise is \n; give ",
        lambda calls: calls.stream().join(calls.versioned(), max, Joined(otherwise="older")),  # type: ignore[arg-type]
        lambda calls: calls.stream().join(calls.versioned(), max, Joined(otherwise="miss")),
        lambda calls: calls.stream().join(
            calls.versioned(), max, Joined(where=operator.lt, otherwise="next", tolerance=1)
        ),
    ),
    Refused(
        "no condition that a version could fail; give where=..., or leave otherwise out",
        lambda calls: calls.stream().join(calls.versioned(), max, Joined(otherwise="next", tolerance=1)),
        lambda calls: calls.stream().join(
            calls.versioned(), max, Joined(where=operator.lt, otherwise="next", tolerance=1)
        ),
        lambda calls: calls.stream().join(calls.versioned(), max, Joined(tolerance=1)),
    ),
    Refused(
        "and nothing says how far; give tolerance='10 minutes', how far from a row its match may be",
        lambda calls: calls.stream().join(calls.versioned(), max, Joined(where=operator.lt, otherwise="next")),
        lambda calls: calls.stream().join(
            calls.versioned(retention=600_000),
            max,
            Joined(where=operator.lt, otherwise="next", tolerance="10 minutes"),
        ),
    ),
    Refused(
        "direction is \n; give ",
        lambda calls: calls.stream().join(calls.versioned(), max, Joined(direction="backwards")),  # type: ignore[arg-type]
        lambda calls: calls.stream().join(calls.versioned(), max, Joined(direction="backward")),
        lambda calls: calls.stream().join(calls.versioned(), max, Joined(grace=1, tolerance=1, direction="forward")),
        lambda calls: calls.stream().join(calls.versioned(), max, Joined(grace=1, tolerance=1, direction="nearest")),
    ),
    Refused(
        ", so each row waits for a match that is later, and nothing says for how long; give tolerance='10 minutes', ",
        lambda calls: calls.stream().join(calls.versioned(), max, Joined(grace=0, direction="forward")),
        lambda calls: calls.stream().join(
            calls.versioned(retention=660_000),
            max,
            Joined(grace="1 minute", tolerance="10 minutes", direction="forward"),
        ),
        lambda calls: calls.stream().join(
            calls.versioned(retention=600_000), max, Joined(grace=0, tolerance="10 minutes", direction="forward")
        ),
    ),
    Refused(
        " is not versioned, so nothing tells what ",
        lambda calls: calls.stream().join(calls.table(), max, Joined(exact=False)),
        lambda calls: calls.stream().join(calls.versioned(), max, Joined(exact=False)),
    ),
    Refused(
        "cannot have \n: a global table has no history; join with",
        lambda calls: calls.stream().join(calls.builder.global_table("g"), max, Joined(exact=False)),
        lambda calls: calls.stream().join(calls.versioned(), max, Joined(exact=False)),
    ),
    Refused(
        "which is made result by result; leave vectorized out",
        lambda calls: calls.versioned().join(calls.versioned("w"), max, history="complete", vectorized=True),
        lambda calls: calls.versioned().join(calls.versioned("w"), max, history="complete"),
    ),
    Refused(
        "because results come out of order; use Materialized.versioned, or no store",
        lambda calls: calls.versioned().join(
            calls.versioned("w"), max, Materialized("j", value_serde="string"), history="complete"
        ),
        lambda calls: calls.versioned().join(
            calls.versioned("w"),
            max,
            Materialized.versioned("j", history_retention=9, value_serde="string"),
            history="complete",
        ),
        lambda calls: calls.versioned().join(calls.versioned("w"), max, history="complete"),
    ),
    Refused(
        "pass Materialized.versioned to the join",
        lambda calls: (
            calls.versioned()
            .join(calls.versioned("w"), max, history="complete")
            .group_by(by_value, Grouped("string", "string"))
            .count()
        ),
        lambda calls: (
            calls.versioned()
            .join(
                calls.versioned("w"),
                max,
                Materialized.versioned(history_retention=9, value_serde="string"),
                history="complete",
            )
            .group_by(by_value, Grouped("string", "string"))
            .count()
        ),
    ),
    Refused(
        "cannot have a complete history, because table ",
        lambda calls: calls.versioned().join(calls.table(), max, history="complete"),
        lambda calls: calls.versioned().join(calls.versioned("w"), max, history="complete"),
    ),
    Refused(
        "ends before it begins: before is \n and after \n; give lengths whose sum is not negative",
        lambda calls: JoinWindows(before=5, after=-6),
        lambda calls: JoinWindows(before=5, after=-5),
    ),
]
"""Joins."""

TABLES = [
    Refused(
        " cannot hold this table; leave the kind out, or choose ",
        lambda calls: calls.table(materialized=Materialized("t", StoreKind.WINDOW)),
        lambda calls: calls.table(materialized=Materialized("t")),
        lambda calls: calls.table(materialized=Materialized("t", StoreKind.TIMESTAMPED_KEY_VALUE)),
        lambda calls: calls.table(materialized=Materialized("t", StoreKind.VERSIONED, history_retention=10)),
        lambda calls: calls.stream().group_by_key().count(Materialized("n", StoreKind.KEY_VALUE)),
    ),
    Refused(
        " can still change after that; give it a retention of at least ",
        lambda calls: calls.counted(Materialized("n", retention=14)),
        lambda calls: calls.counted(Materialized("n", retention=15)),
    ),
    Refused(
        "with those of the streams, so an as-of lookup would mean little",
        lambda calls: calls.builder.global_table("g", materialized=Materialized.versioned(history_retention=9)),
        lambda calls: calls.builder.global_table("g", materialized=Materialized()),
        lambda calls: calls.stream().join(calls.versioned(), max),
    ),
    Refused(
        "a vectorized reducer takes columns, but values",
        lambda calls: calls.stream("in", Consumed("string", "msgpack")).group_by_key().reduce(max, vectorized=True),
        lambda calls: calls.stream("in", NUMBERS).group_by_key().reduce(max, vectorized=True),
        lambda calls: calls.stream("in", Consumed("string", "msgpack")).group_by_key().reduce(max),
    ),
    Refused(
        "; give the ttl to the table that is grouped: Materialized(ttl=..., expired='delete')",
        lambda calls: calls.table().group_by(by_value).count(Materialized(ttl=10)),
        lambda calls: calls.table(materialized=Materialized(ttl=10, expired="delete")).group_by(by_value).count(),
    ),
    Refused(
        "must travel to the tasks of their groups, but their value serde is not known",
        lambda calls: calls.nameless_table().group_by(by_value).count(),
        lambda calls: calls.nameless_table().group_by(by_value, Grouped(value_serde="string")).count(),
    ),
    Refused(
        "cannot be cached: a cache drops versions; leave caching out",
        lambda calls: calls.versioned(caching=True),
        lambda calls: calls.versioned(),
    ),
    Refused(
        "is versioned and cannot be suppressed: its updates are ordered",
        lambda calls: calls.versioned().suppress(Suppressed.until_time_limit(10)),
        lambda calls: (
            calls.versioned()
            .map_values(str, Materialized("plain", value_serde="string"))
            .suppress(Suppressed.until_time_limit(10))
        ),
    ),
    Refused(
        "are held back in a store, but the serde of its ",
        lambda calls: calls.nameless_table().suppress(Suppressed.until_time_limit(10)),
        lambda calls: calls.nameless_table(Materialized(value_serde="string")).suppress(
            Suppressed.until_time_limit(10)
        ),
    ),
    Refused(
        "until_window_closes needs a windowed table, but ",
        lambda calls: calls.table().suppress(Suppressed.until_window_closes()),
        lambda calls: calls.table().suppress(Suppressed.until_time_limit(10)),
        lambda calls: calls.counted(Materialized()).suppress(Suppressed.until_window_closes()),
    ),
    Refused(
        " serde: name one in Materialized(",
        lambda calls: calls.bare.table("t", materialized=Materialized("names")),
        lambda calls: calls.bare.table("t", materialized=Materialized("names", value_serde="string")),
        lambda calls: calls.bare.table("t", Consumed(value_serde="string"), Materialized("names")),
        lambda calls: StreamsBuilder(value_serde="string").table("t", materialized=Materialized("names")),
    ),
    Refused(
        "; give a number that is not negative",
        lambda calls: Suppressed.until_time_limit(1, max_records=-1),
        lambda calls: Suppressed.until_time_limit(1, max_records=0),
    ),
    Refused(
        " is \n ms; give at least \n ms",
        lambda calls: TimeWindows(0),
        lambda calls: TimeWindows(1),
    ),
    Refused(
        " leaves gaps between windows of ",
        lambda calls: TimeWindows(10, advance=11),
        lambda calls: TimeWindows(10, advance=10),
    ),
    Refused(
        " is not within the advance, \n; windows start at the same times with offset=",
        lambda calls: TimeWindows("1 hour", offset="75 minutes"),
        lambda calls: TimeWindows("1 hour", offset="15 minutes"),
    ),
    Refused(
        " never have a size of \n; give a multiple of the step as the size",
        lambda calls: CumulativeWindows("1 hour", "25 minutes"),
        lambda calls: CumulativeWindows("75 minutes", "25 minutes"),
    ),
    Refused(
        " is not within the size, \n; windows start at the same times with offset=",
        lambda calls: CumulativeWindows("1 hour", "15 minutes", offset="75 minutes"),
        lambda calls: CumulativeWindows("1 hour", "15 minutes", offset="15 minutes"),
    ),
    Refused(
        " is not shorter than the largest length, ",
        lambda calls: SessionWindows("1 day", max_length="1 day"),
        lambda calls: SessionWindows("30 minutes", max_length="1 day"),
        lambda calls: TimeWindows("1 day"),
    ),
    Refused(
        ", but only sessions with a largest length are cut; give one, such as max_length='1 day', or leave out ",
        lambda calls: SessionWindows("30 minutes", zone="Europe/Berlin"),
        lambda calls: SessionWindows("30 minutes", zone="Europe/Berlin", max_length="1 day"),
        lambda calls: SessionWindows("30 minutes"),
    ),
    Refused(
        " is the gap of all records; leave out at_most, or give a gap of each record: F.col('gap'), in Pond ",
        lambda calls: SessionWindows("30 minutes", at_most="1 hour"),
        lambda calls: SessionWindows("30 minutes"),
        lambda calls: calls.stream().group_by_key().windowed_by(SessionWindows(lambda key, value: 5, at_most="1 hour")),
    ),
    Refused(
        "sessions are kept for the greatest; give it: at_most=",
        lambda calls: SessionWindows(lambda key, value: 5),
        lambda calls: SessionWindows(lambda key, value: 5, at_most="1 hour"),
    ),
    Refused(
        "SessionWindows: at_most is \n; give less than 9000 years",
        lambda calls: SessionWindows(lambda key, value: 5, at_most="4000000 days"),
        lambda calls: SessionWindows(lambda key, value: 5, at_most="3000000 days"),
    ),
    Refused(
        "; in a topology give a function of key and value, such as lambda key, value: value['gap']",
        lambda calls: calls.stream().group_by_key().windowed_by(SessionWindows({"gap"}, at_most="1 hour")),
        lambda calls: (
            calls.stream().group_by_key().windowed_by(SessionWindows(lambda key, value: value["gap"], at_most="1 hour"))
        ),
    ),
    Refused(
        "windows of the calendar follow one another",
        lambda calls: TimeWindows("1 week", zone="Europe/Berlin", advance="1 day"),
        lambda calls: TimeWindows("1 week", zone="Europe/Berlin"),
        lambda calls: TimeWindows("1 week", advance="1 day"),
    ),
    Refused(
        "windows of the calendar begin with its days",
        lambda calls: TimeWindows("1 week", zone="Europe/Berlin", offset="6 days"),
        lambda calls: TimeWindows("1 week", zone="Europe/Berlin"),
        lambda calls: TimeWindows("1 week", zone="Europe/Berlin", week_start="sunday"),
    ),
    Refused(
        " is no window of the calendar; give one of ",
        lambda calls: TimeWindows("2 months", zone="Europe/Berlin"),
        *(
            lambda calls, size=size: TimeWindows(size, zone="Europe/Berlin")
            for size in ("1 day", "1 week", "1 month", "3 months", "1 year")
        ),
        lambda calls: TimeWindows("12 hours"),
    ),
    Refused(
        " are no weeks; leave it out",
        lambda calls: TimeWindows("1 day", zone="Europe/Berlin", week_start="sunday"),
        lambda calls: TimeWindows("1 day", zone="Europe/Berlin"),
        lambda calls: TimeWindows("1 week", zone="Europe/Berlin", week_start="sunday"),
    ),
    Refused(
        "which may be another one on each machine; give the name of a place, such as",
        lambda calls: TimeWindows("1 day", zone="localtime"),
        lambda calls: TimeWindows("1 day", zone="Europe/Berlin"),
        lambda calls: TimeWindows("1 day", zone="UTC"),
    ),
    Refused(
        "of this machine has none of that name",
        lambda calls: TimeWindows("1 day", zone="Berlin"),
        lambda calls: TimeWindows("1 day", zone="Europe/Berlin"),
        lambda calls: TimeWindows("1 day", zone="UTC"),
    ),
    Refused(
        ": windows of the calendar, \n, need a time zone; give it: ",
        lambda calls: calls.stream().group_by_key().windowed_by(TimeWindows("1 month")),
        lambda calls: calls.stream().group_by_key().windowed_by(TimeWindows("1 month", zone="Europe/Berlin")),
    ),
    Refused(
        ": windows of the calendar, \n, need a time zone; give it: ",
        lambda calls: calls.stream().group_by_key().windowed_by(SessionWindows("1 hour", max_length="1 month")),
        lambda calls: (
            calls.stream()
            .group_by_key()
            .windowed_by(SessionWindows("1 hour", max_length="1 month", zone="Europe/Berlin"))
        ),
    ),
    Refused(
        "holds records back for a grace period, but their ",
        lambda calls: calls.bare.stream("in").join(
            calls.bare.table("v", TEXT, Materialized.versioned(history_retention=10)), max, Joined(grace=10)
        ),
        lambda calls: calls.bare.stream("in", Consumed(value_serde="string")).join(
            calls.bare.table("v", TEXT, Materialized.versioned(history_retention=10)), max, Joined(grace=10)
        ),
        lambda calls: calls.bare.stream("in").join(
            calls.bare.table("v", TEXT, Materialized.versioned(history_retention=10)),
            max,
            Joined(value_serde="string", grace=10),
        ),
    ),
]
"""Tables, their stores, and windows."""

NODES = [
    Refused(
        " reads no topic; name at least one: add_source(",
        lambda calls: calls.nodes.add_source("more"),
        lambda calls: calls.nodes.add_source("more", "topic"),
    ),
    Refused(
        " does not know how records become bytes: give ",
        lambda calls: TopologyBuilder(value_serde=None).add_repartition("moved", "source"),
        lambda calls: calls.nodes.add_repartition("moved", "source", value_serde="string"),
        lambda calls: calls.nodes.add_repartition("moved", "source"),
    ),
    Refused(
        "has no parent, so no record reaches it; name at least one",
        lambda calls: calls.nodes.add_processor("more", PassOn),
        lambda calls: calls.nodes.add_processor("more", PassOn, "source"),
    ),
    Refused(
        " twice; each record reaches it once, so once",
        lambda calls: calls.nodes.add_processor("more", PassOn, "source", "source"),
        lambda calls: calls.nodes.add_processor("more", PassOn, "source"),
    ),
    Refused(
        "; give this one another name",
        lambda calls: calls.nodes.add_processor("pass", PassOn, "source"),
        lambda calls: calls.nodes.add_processor("other", PassOn, "source"),
    ),
    Refused(
        ", which is a sink: nothing comes out of it; name what comes before it (",
        lambda calls: calls.nodes.add_processor("more", PassOn, "sink"),
        lambda calls: calls.nodes.add_processor("more", PassOn, "pass"),
    ),
    Refused(
        "so nothing else may come out of it; read the store",
        lambda calls: (
            calls.nodes.add_global_store(NAMES, "names in", PassOn, name="fill"),
            calls.nodes.add_processor("more", PassOn, "fill"),
        ),
        lambda calls: (
            calls.nodes.add_global_store(NAMES, "names in", PassOn, name="fill"),
            calls.nodes.add_processor("more", PassOn, "source", stores=["names"]),
        ),
    ),
    Refused(
        "; use that one twice instead",
        lambda calls: (calls.stream().to("out"), calls.stream("in", Consumed(value_serde="json")).to("other")),
        lambda calls: [stream.to(topic) for stream in [calls.stream()] for topic in ("out", "other")],
        lambda calls: [calls.nodes.add_processor(name, PassOn, "source") for name in ("one", "other")],
    ),
    Refused(
        "; give the one for ",
        lambda calls: [calls.stream().group_by_key().count(Materialized("counts")) for _ in range(2)],
        lambda calls: [calls.stream().group_by_key().count(Materialized(f"counts{one}")) for one in range(2)],
    ),
    Refused(
        "which does not exist (yet)",
        lambda calls: calls.nodes.add_processor("more", PassOn, "nobody"),
        lambda calls: (
            calls.nodes.add_processor("nobody", PassOn, "source"),
            calls.nodes.add_processor("more", PassOn, "nobody"),
        ),
    ),
    Refused(
        " cannot be connected to ",
        lambda calls: (calls.nodes.add_state_store(TOTALS), calls.nodes.connect("nobody", "totals")),
        lambda calls: (calls.nodes.add_state_store(TOTALS), calls.nodes.connect("pass", "totals")),
        lambda calls: (
            calls.nodes.add_state_store(TOTALS),
            calls.nodes.add_processor("nobody", PassOn, "source"),
            calls.nodes.connect("nobody", "totals"),
        ),
    ),
    Refused(
        ", which was never added",
        lambda calls: calls.nodes.connect("pass", "totals"),
        lambda calls: (calls.nodes.add_state_store(TOTALS), calls.nodes.connect("pass", "totals")),
    ),
    Refused(
        " in every task, so it can use no other store; read ",
        lambda calls: (
            calls.nodes.add_global_store(NAMES, "names in", PassOn, name="fill"),
            calls.nodes.add_state_store(TOTALS),
            calls.nodes.connect("fill", "totals"),
        ),
        lambda calls: (
            calls.nodes.add_global_store(NAMES, "names in", PassOn, name="fill"),
            calls.nodes.add_state_store(TOTALS),
            calls.nodes.connect("pass", "totals"),
        ),
    ),
    Refused(
        "; continue from what is written (repartition(), or ",
        lambda calls: (calls.stream().to("between"), calls.stream("between").to("out"), calls.builder.build()),
        lambda calls: (
            calls.stream().repartition(Repartitioned(name="between")).to("out"),
            calls.builder.build(),
        ),
        lambda calls: (
            calls.nodes.add_repartition("between", "pass"),
            calls.nodes.add_sink("last", "end", "between"),
            calls.nodes.build(),
        ),
        lambda calls: (
            calls.stream().to("between"),
            calls.builder.build(),
            calls.bare.stream("between", TEXT).to("out", Produced("string", "string")),
            calls.bare.build(),
        ),
    ),
    Refused(
        " write it; give the sink, or the repartition, another name",
        lambda calls: (
            calls.stream().repartition(Repartitioned(name="moved")).to("moved-repartition"),
            calls.builder.build(),
        ),
        lambda calls: (calls.stream().repartition(Repartitioned(name="moved")).to("out"), calls.builder.build()),
        lambda calls: (
            calls.stream().repartition(Repartitioned(name="other")).to("moved-repartition"),
            calls.builder.build(),
        ),
    ),
    Refused(
        "which is not connected to it; connected: ",
        lambda calls: processed(calls, Stored),
        lambda calls: processed(calls, Stored, TOTALS),
    ),
]
"""Graphs of processors."""

STREAMS = [
    Refused(
        "has no branches; each branch() returns a new object",
        lambda calls: [parts.no_default_branch() for parts in [calls.split()] if parts.branch(by_value)],
        lambda calls: calls.split().branch(by_value).no_default_branch(),
        lambda calls: [parts.branch(by_value).no_default_branch() for parts in [calls.split()]],
    ),
    Refused(
        "a sink is a topic or a function that chooses one, not ",
        lambda calls: calls.stream().to(7),
        lambda calls: calls.stream().to("7"),
    ),
    Refused(
        "name all of them: to(extractor, topics=['a', 'b'])",
        lambda calls: calls.stream().to(chosen),
        lambda calls: calls.stream().to(chosen, topics=["a", "b"]),
    ),
    Refused(
        "are those that a function may choose; leave topics out",
        lambda calls: calls.stream().to("out", topics=["a"]),
        lambda calls: calls.stream().to("out"),
        lambda calls: calls.stream().to(chosen, topics=["a"]),
    ),
    Refused(
        " serde: give Produced(",
        lambda calls: calls.bare.stream("in").to("out"),
        lambda calls: calls.bare.stream("in").to("out", Produced(value_serde="string")),
        lambda calls: calls.bare.stream("in").to("out", Produced(schema="key string, value string")),
    ),
    Refused(
        "must travel to the tasks of their keys, but their ",
        lambda calls: calls.nameless().select_key(by_value).group_by_key().count(),
        lambda calls: calls.nameless().select_key(by_value).group_by_key(Grouped(value_serde="string")).count(),
        lambda calls: calls.nameless().select_key(by_value).repartition(Repartitioned(value_serde="string")),
    ),
]
"""Streams and their sinks."""

PLANS = [
    Refused(
        "the topology has no sink, so it has no output",
        lambda calls: (calls.stream(), make_plan(calls.builder.build(), None, 2)),
        lambda calls: (calls.stream().to("out"), make_plan(calls.builder.build(), None, 2)),
    ),
    Refused("; say which one: sink=", lambda calls: calls.plan(None), lambda calls: calls.plan("all")),
    Refused(
        "; name each once",
        lambda calls: calls.plan("all~all"),
        lambda calls: calls.plan("all~some"),
    ),
    Refused(
        " sub-topologies; give each its own sink and unite the outputs",
        lambda calls: calls.counts("counts", "counts"),
        lambda calls: calls.counts("one", "other"),
    ),
    Refused(
        "; write the records to a topic there, and go on in a second query",
        lambda calls: make_plan(calls.named_again(None), None, 2),
        lambda calls: [make_plan(calls.named_again(topic), None, 2) for topic in ("named", "out")],
        lambda calls: calls.check_named_again(),
    ),
]
"""How a topology is distributed."""

RUNNING = [
    Refused(
        " schedules by stream time after init; do it in init",
        lambda calls: processed(calls, Late),
        lambda calls: processed(calls, Early),
    ),
    Refused(
        "but has no store that keeps it from micro-batch to micro-batch; give it one where it is added",
        lambda calls: processed(calls, Timed),
        lambda calls: processed(calls, Timed, StoreSpec("task-time-of-mine", StoreKind.KEY_VALUE, STRING, INT64)),
    ),
    Refused(
        ", of which earlier releases took notice, and this one does not; ",
        lambda calls: processed(calls, OnceTimed, TOTALS),
        lambda calls: processed(calls, Timed, TOTALS),
    ),
    Refused(
        " declares something after its init, when the task has begun without",
        lambda calls: processed(calls, LateDeclaring, TOTALS),
        lambda calls: processed(calls, Timed, TOTALS),
    ),
    Refused(
        ", which is known only if the task takes one record after the other",
        lambda calls: processed(calls, Untimed, TOTALS),
        lambda calls: processed(calls, Timed, TOTALS),
    ),
    Refused(
        " is global: every task has a copy, so only the processor that fills it may call ",
        lambda calls: (
            calls.builder.add_global_store(NAMES, "names in", PassOn),
            calls.stream().process(Naming, stores=["names"]),
            built(calls.builder),
        ),
        lambda calls: (
            calls.builder.add_global_store(NAMES, "names in", PassOn),
            calls.stream().to("names"),
            built(calls.builder),
        ),
        lambda calls: (
            calls.builder.add_state_store(NAMES),
            calls.stream().process(Naming, stores=["names"]),
            built(calls.builder),
        ),
    ),
    Refused(
        " as a topic; return the topic's name as text",
        lambda calls: (calls.stream().to(lambda key, value: 7, topics=["a"]), built(calls.builder)),
        lambda calls: (calls.stream().to(lambda key, value: "a", topics=["a"]), built(calls.builder)),
    ),
    Refused(
        ", which is not among those that it may choose, ",
        lambda calls: (calls.stream().to(lambda key, value: "b", topics=["a"]), built(calls.builder)),
        lambda calls: (calls.stream().to(lambda key, value: "b", topics=["a", "b"]), built(calls.builder)),
    ),
    Refused(
        " is \n; give one of \n",
        lambda calls: TopologyDriver(calls.nodes.build(), on_error="ignore"),
        lambda calls: TopologyDriver(calls.nodes.build(), on_error="fail").close(),
        lambda calls: TopologyDriver(calls.nodes.build(), on_error="skip").close(),
        lambda calls: TopologyDriver(calls.nodes.build(), on_error="dead-letter").close(),
    ),
    Refused(
        "within_history is about records that wait, and without a grace none do; give both",
        lambda calls: Joined(within_history=True),
        lambda calls: Joined(within_history=True, grace=10),
    ),
    Refused(
        "; give a release of Kafka Streams such as '3.4'",
        lambda calls: StreamsBuilder(upgrade_from="old").table("t").group_by(by_value).count(),
        lambda calls: StreamsBuilder(upgrade_from="3.4").table("t").group_by(by_value).count(),
    ),
]
"""What shows when records come, or when it is to run."""

TIMERS = [
    Refused(
        "; give a datetime, a timedelta, or text such as '5 minutes'",
        lambda calls: ruled(Ringing, lambda context: context.set_timer(5)),  # type: ignore[arg-type]
        lambda calls: ruled(Ringing, lambda context: context.set_timer(datetime(2026, 1, 1, tzinfo=UTC))),
        lambda calls: ruled(Ringing, lambda context: context.set_timer(timedelta(minutes=5))),
        lambda calls: ruled(Ringing, lambda context: context.set_timer("5 minutes")),
    ),
    Refused(
        " sets timers, but does not override on_timer; define it",
        lambda calls: ruled(Ruled, lambda context: context.set_timer("5 minutes")),
        lambda calls: ruled(Ringing, lambda context: context.set_timer("5 minutes")),
    ),
    Refused(
        "the name of a timer is \n; give text",
        lambda calls: ruled(Ringing, lambda context: context.set_timer("5 minutes", 1)),  # type: ignore[arg-type]
        lambda calls: ruled(Ringing, lambda context: context.set_timer("5 minutes", "1")),
    ),
    Refused(
        " has no time zone; give it one, as in ",
        lambda calls: ruled(Ringing, lambda context: context.set_timer(datetime(2026, 1, 1))),
        lambda calls: ruled(Ringing, lambda context: context.set_timer(datetime(2026, 1, 1, tzinfo=UTC))),
    ),
    Refused(
        " cannot be those of a dict; select the column as an array of entries",
        lambda calls: ruled(Ruled, id, pa.map_(pa.list_(pa.int64()), pa.int64())),
        lambda calls: ruled(Ruled, id, pa.list_(pa.struct([("key", pa.list_(pa.int64())), ("value", pa.int64())]))),
    ),
]
"""Processors by key."""


@pytest.mark.parametrize("refused", [*JOINS, *TABLES, *NODES, *STREAMS, *PLANS, *RUNNING, *TIMERS], ids=repr)
def test_a_refused_topology_is_built_as_its_message_says(refused: Refused) -> None:
    refused.check(Calls, MillpondError)
