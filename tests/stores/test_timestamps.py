"""Times at the public edge become int milliseconds."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from millpond.errors import ConfigurationError
from millpond.stores.times import MAX_TIME, MIN_TIME, to_length, to_millis


def test_integers_are_milliseconds_already() -> None:
    assert [to_millis(time) for time in (0, -1, MIN_TIME, MAX_TIME)] == [0, -1, MIN_TIME, MAX_TIME]


def test_datetimes_count_from_1970_in_utc_whatever_their_zone() -> None:
    assert to_millis(datetime(1970, 1, 1, 0, 0, 1, 1999, tzinfo=UTC)) == 1001
    assert to_millis(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0
    assert to_millis(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)) == -1000


def test_timedeltas_are_lengths_in_milliseconds() -> None:
    assert to_millis(timedelta(days=2)) == 172_800_000


@pytest.mark.parametrize("bad", [datetime(2020, 1, 1), 1.5, "1", None, True, MAX_TIME + 1, MIN_TIME - 1])
def test_anything_else_is_refused_by_name(bad: object) -> None:
    with pytest.raises(ConfigurationError, match="retention"):
        to_millis(bad, "retention")  # type: ignore[arg-type]


def test_a_length_of_time_is_not_negative() -> None:
    assert to_length(timedelta(seconds=1), "grace") == 1000
    assert to_length(0, "grace") == 0
    with pytest.raises(ConfigurationError, match="grace is -1 ms; it must not be negative"):
        to_length(-1, "grace")
