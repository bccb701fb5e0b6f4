"""Lengths of time are taken as text wherever they are taken, and nonsense is refused where it is written."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from millpond.errors import ConfigurationError
from millpond.processors import (
    Batch,
    Joined,
    JoinWindows,
    Materialized,
    Processor,
    ProcessorContext,
    PunctuationType,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyDriver,
)
from millpond.stores import StoreKind

MINUTE = 60_000


class Ticking(Processor):
    """Schedules a punctuation at an interval that is given."""

    def __init__(self, interval: Any) -> None:
        self._interval = interval

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(self._interval, PunctuationType.STREAM_TIME, lambda time: None)

    def process(self, batch: Batch) -> None:
        self.context.forward(batch)


def schedule(interval: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(lambda: Ticking(interval)).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("in", "a", 1, 0)


PLACES: dict[str, Callable[[Any], object]] = {
    "before of JoinWindows": lambda length: JoinWindows(before=length),
    "after of JoinWindows": lambda length: JoinWindows(after=length),
    "grace of JoinWindows": lambda length: JoinWindows(grace=length),
    "time difference of JoinWindows": JoinWindows.of,
    "size of TimeWindows": TimeWindows,
    "advance of TimeWindows": lambda length: TimeWindows("1 day", advance=length),
    "grace of TimeWindows": lambda length: TimeWindows("1 day", grace=length),
    "difference of SlidingWindows": SlidingWindows,
    "grace of SlidingWindows": lambda length: SlidingWindows("1 day", grace=length),
    "gap of SessionWindows": SessionWindows,
    "grace of SessionWindows": lambda length: SessionWindows("1 day", grace=length),
    "history_retention of Materialized": lambda length: Materialized.versioned(history_retention=length),
    "grace of Materialized": lambda length: Materialized.versioned(history_retention="1 day", grace=length),
    "retention of Materialized": lambda length: Materialized(retention=length),
    "grace of Joined": lambda length: Joined(grace=length),
    "wait of Suppressed": Suppressed.until_time_limit,
    "reorder_within of the table": lambda length: StreamsBuilder().table("t", reorder_within=length),
    "reorder_within of the table of": lambda length: StreamsBuilder().stream("t").to_table(reorder_within=length),
    "punctuation interval": schedule,
}


@pytest.mark.parametrize(("place", "make"), PLACES.items())
def test_lengths_of_time_can_be_text_everywhere(place: str, make: Callable[[Any], object]) -> None:
    make("1 minute")


def test_a_month_is_no_length_of_time_but_of_windows_of_the_calendar() -> None:
    for place, make in PLACES.items():
        if place != "size of TimeWindows":
            with pytest.raises(ConfigurationError, match=place):
                make("1 month")
    assert TimeWindows("1 month").calendar is not None


@pytest.mark.parametrize("nonsense", ["1 minuet", "1 monty", "", 1.5, datetime(2020, 1, 1, tzinfo=UTC), True])
@pytest.mark.parametrize(("place", "make"), PLACES.items())
def test_nonsense_is_refused_where_it_is_written(place: str, make: Callable[[Any], object], nonsense: object) -> None:
    with pytest.raises(ConfigurationError, match=place):
        make(nonsense)


@pytest.mark.parametrize(("place", "make"), [(place, PLACES[place]) for place in PLACES if place != "grace of Joined"])
def test_a_length_that_must_not_be_negative_is_refused_where_it_is_written(
    place: str, make: Callable[[Any], object]
) -> None:
    with pytest.raises(ConfigurationError, match=r"negative|at least|positive"):
        make("-1 minute")


def test_a_join_with_a_table_takes_a_negative_grace_as_kafka_streams_does() -> None:
    assert Joined(grace=-5).grace == -5


def test_text_is_as_long_as_it_says() -> None:
    windows = TimeWindows("1 hour 30 minutes", advance="30 minutes", grace="5 seconds")
    assert (windows.size, windows.advance, windows.grace) == (90 * MINUTE, 30 * MINUTE, 5000)
    assert SlidingWindows("1 minute").difference == SessionWindows("INTERVAL 1 MINUTE").gap == MINUTE
    assert JoinWindows.of("1 minute", grace="2 minutes") == JoinWindows.of(MINUTE, grace=2 * MINUTE)
    assert JoinWindows(before="-1 minute", after="2 minutes").size == MINUTE
    assert Suppressed.until_time_limit("1 minute").wait == MINUTE
    spec = Materialized.versioned("s", history_retention="1 minute", grace="30 seconds").spec(
        "", [StoreKind.VERSIONED], "string", "string"
    )
    assert (spec.history_retention, spec.grace) == (MINUTE, MINUTE // 2)


def test_a_join_waits_as_long_as_its_text_says() -> None:
    builder = StreamsBuilder(value_serde="int64")
    prices = builder.table("prices", materialized=Materialized.versioned(history_retention="1 minute"))
    builder.stream("orders").join(prices, lambda order, price: (order, price), Joined(grace="10 seconds")).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("orders", [("a", 1, 0), ("a", 2, 9_999)])
        assert driver.read("out") == []
        driver.pipe("prices", "a", 7, 0)
        driver.pipe("orders", "a", 3, 10_000)
        assert [record.value for record in driver.read("out")] == [(1, 7)]
