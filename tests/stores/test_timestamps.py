"""Times at the public edge become integers."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import ConfigurationError
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME, to_instant, to_length, to_micros, to_millis

WRITTEN = {
    "5 minutes": timedelta(minutes=5),
    "1 hour 30 minutes": timedelta(hours=1, minutes=30),
    "INTERVAL 5 MINUTES": timedelta(minutes=5),
    "interval  1  Day": timedelta(days=1),
    "10 seconds": timedelta(seconds=10),
    "250 milliseconds": timedelta(milliseconds=250),
    "1 week 2 days": timedelta(days=9),
    "1 day 2 day": timedelta(days=3),
    "0 days": timedelta(0),
    "\t5\nminutes ": timedelta(minutes=5),
    "-5 minutes": timedelta(minutes=-5),
    "- 5 minutes": timedelta(minutes=-5),
    "+5 minutes": timedelta(minutes=5),
    "1 day -2 hours": timedelta(hours=22),
    "1.5 seconds": timedelta(seconds=1.5),
    ".5 seconds": timedelta(seconds=0.5),
    "-.5 seconds": timedelta(seconds=-0.5),
    "5. seconds": timedelta(seconds=5),
    "1.500000000 seconds": timedelta(seconds=1.5),
}
REFUSED = {
    "5 min": "did you mean 'minutes'",
    "5 minuts": "did you mean 'minutes'",
    "5 secs": "did you mean 'seconds'",
    "5 m": "did you mean 'minutes'",
    "5 ms": "did you mean 'milliseconds'",
    "1 fortnight": "'fortnight' is not a unit of time",
    "1 month": "months and years have no fixed length",
    "2 YEARS": "months and years have no fixed length",
    "5minutes": "a space is missing before 'minutes'",
    "1.5 minutes": "only seconds can have a fraction",
    "1 day, 2 hours": "not a length of time",
    "1 day2 hours": "not a length of time",
    "minutes": "not a length of time",
    "5": "not a length of time",
    "1e3 seconds": "not a length of time",
    "1.2.3 seconds": "not a length of time",
    "1.0000000000 seconds": "not a length of time",
    "- - 1 day": "not a length of time",
    "interval": "not a length of time",
    "interval1 day": "not a length of time",
    "": "not a length of time",
    "٣ days": "not a length of time",
    "9" * 5000 + " days": "not a length of time",
}


def test_integers_are_milliseconds_already() -> None:
    bounds = [0, -1, MIN_TIME, MAX_TIME]
    assert [to_millis(time) for time in bounds] == [to_instant(time) for time in bounds] == bounds


def test_datetimes_count_from_1970_in_utc_whatever_their_zone() -> None:
    assert to_instant(datetime(1970, 1, 1, 0, 0, 1, 1999, tzinfo=UTC)) == 1001
    assert to_instant(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0
    assert to_instant(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)) == -1000


def test_timedeltas_are_lengths_in_milliseconds_rounded_down() -> None:
    assert to_millis(timedelta(days=2)) == 172_800_000
    assert to_millis(timedelta(microseconds=1999)) == 1
    assert to_millis(timedelta(microseconds=-1)) == -1


@pytest.mark.parametrize(("text", "length"), WRITTEN.items())
def test_text_is_the_length_that_it_is_in_spark(text: str, length: timedelta) -> None:
    assert timedelta(milliseconds=to_millis(text)) == timedelta(microseconds=to_micros(text)) == length


@pytest.mark.parametrize(("text", "reason"), REFUSED.items())
def test_text_that_is_no_fixed_length_is_refused_with_what_would_be_right(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"(?s)^grace is .*{reason}.*'1 hour 30 minutes'"):
        to_micros(text, "grace")


def test_text_is_never_rounded() -> None:
    assert to_millis("1000 microseconds") == to_millis("0.001 seconds") == 1
    assert to_micros("1 microsecond") == to_micros("0.000001 seconds") == 1
    with pytest.raises(ConfigurationError, match="not a whole number of milliseconds"):
        to_millis("1 microsecond")
    with pytest.raises(ConfigurationError, match="not a whole number of microseconds"):
        to_micros("0.0000001 seconds")


def test_microseconds_are_exact_and_integers_still_milliseconds() -> None:
    assert to_micros(5) == 5000
    assert to_micros(timedelta(microseconds=1999)) == 1999


@given(st.timedeltas(-timedelta(days=100_000_000), timedelta(days=100_000_000)))
def test_a_timedelta_written_as_text_is_the_same(length: timedelta) -> None:
    text = f"{length.days} days {length.seconds} seconds {length.microseconds} microseconds"
    assert to_micros(text) == to_micros(length)


@pytest.mark.parametrize("long", [MAX_TIME // 1000 + 1, "20000000 weeks", timedelta.max])
def test_microseconds_have_64_bits(long: int | str | timedelta) -> None:
    with pytest.raises(ConfigurationError, match="wait does not fit into 64 bits"):
        to_micros(long, "wait")


@pytest.mark.parametrize("bad", [datetime(2020, 1, 1, tzinfo=UTC), 1.5, "1", None, True, MAX_TIME + 1, MIN_TIME - 1])
def test_what_is_not_a_length_of_time_is_refused_by_name(bad: object) -> None:
    for convert in (to_millis, to_micros):
        with pytest.raises(ConfigurationError, match="retention"):
            convert(bad, "retention")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad", [datetime(2020, 1, 1), timedelta(1), "5 minutes", 1.5, None, True, MAX_TIME + 1, MIN_TIME - 1]
)
def test_what_is_not_a_point_in_time_is_refused_by_name(bad: object) -> None:
    with pytest.raises(ConfigurationError, match="as_of"):
        to_instant(bad, "as_of")  # type: ignore[arg-type]


def test_a_length_of_time_is_not_negative() -> None:
    assert to_length(timedelta(seconds=1), "grace") == 1000
    assert to_length(0, "grace") == 0
    with pytest.raises(ConfigurationError, match="grace is -1 ms; it must not be negative"):
        to_length(-1, "grace")
    with pytest.raises(ConfigurationError, match="grace is -300000 ms; it must not be negative"):
        to_length("-5 minutes", "grace")
