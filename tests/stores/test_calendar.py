"""Windows of the calendar: as DuckDB truncates times of a zone, and where clocks change at midnight as dates say."""

from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import ConfigurationError, CorruptStoreError, SerdeError
from millpond.processors import TimeWindowedSerde, TimeWindows
from millpond.processors.options.placing import ends_of, first_starts, last_starts
from millpond.processors.options.windows import ALL_TIMES
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.windows.calendar import Calendar, CalendarUnit, Weekday, grid_of, zone_of
from millpond.stores.typed.windows.grids import EvenGrid
from millpond.stores.typed.windows.windowed import Windowed
from tests.drawing import tries
from tests.processors.verbs.duck import answered

HOUR = 3_600_000
DAY = 24 * HOUR
AT_NIGHT = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Auckland", "UTC"]
"""Zones whose clocks have never changed at midnight since 1950."""

AT_MIDNIGHT = [
    "America/St_Johns", "America/Havana", "America/Sao_Paulo", "America/Toronto", "Pacific/Apia", "America/Juneau",
    "Africa/Cairo", "Asia/Beirut", "Africa/Casablanca",
]  # fmt: skip
WORDS = {
    CalendarUnit.DAY: "day",
    CalendarUnit.WEEK: "week",
    CalendarUnit.MONTH: "month",
    CalendarUnit.QUARTER: "quarter",
    CalendarUnit.YEAR: "year",
}


def millis(*moment: int) -> int:
    return round(datetime(*moment, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type, misc]


def drawn(random: Random) -> int:
    """Return a time of these years, or of any that there can be."""
    far = millis(2060, 1, 1)
    first, last = random.choice([(millis(1950, 1, 1), far), (millis(1850, 1, 1), far), (-(2**60), 2**60)])
    return random.randint(first, last)


@pytest.mark.parametrize("zone", AT_NIGHT)
@pytest.mark.parametrize("unit", CalendarUnit)
def test_windows_of_the_calendar_are_what_duckdb_truncates_times_to(unit: CalendarUnit, zone: str) -> None:
    random, calendar = Random(7), Calendar(unit, zone)
    times = [random.randint(millis(1950, 1, 1), millis(2036, 1, 1)) for _ in range(tries(400))]
    local = f"date_trunc('{WORDS[unit]}', epoch_ms(t) at time zone 'UTC' at time zone '{zone}')"
    bounds = [f"epoch_ms(({local} {then}) at time zone '{zone}')" for then in ("", f"+ interval '{unit.value}'")]
    rows = pa.table({"t": pa.array(times, pa.int64())})
    for time, start, end in answered(f"select t, {', '.join(bounds)} from rows", rows=rows):
        assert (calendar.last(time), calendar.end(calendar.last(time))) == (start, end)


DAYS = [day.value for day in Weekday]


@pytest.mark.parametrize("week_start", DAYS)
def test_weeks_begin_on_the_day_that_is_given(week_start: str) -> None:
    calendar, random = Calendar(CalendarUnit.WEEK, "America/New_York", week_start), Random(1)
    for _ in range(tries(100)):
        time = random.randint(0, millis(2040, 1, 1))
        begun = datetime.fromtimestamp(calendar.last(time) / 1000, ZoneInfo("America/New_York"))
        assert (DAYS[begun.weekday()], begun.hour, begun.minute) == (week_start, 0, 0)
        assert 0 <= time - calendar.last(time) < 7 * DAY + HOUR


@pytest.mark.parametrize("zone", [*AT_NIGHT, *AT_MIDNIGHT, None])
def test_each_moment_is_in_one_window_and_the_next_begins_where_it_ends(zone: str | None) -> None:
    random = Random(3)
    for unit in CalendarUnit:
        calendar = Calendar(unit, zone)
        for _ in range(tries(200)):
            time = drawn(random)
            start = calendar.last(time)
            end = calendar.end(start)
            assert start <= time < end
            assert [calendar.last(one) for one in (start, end - 1, end)] == [start, start, end]
            assert (calendar.first(time), calendar.next(time), calendar.next(start - 1)) == (start, end, start)
            if abs(time) < millis(2035, 1, 1):
                assert end - start <= calendar.longest or time < millis(1900, 1, 2)


@pytest.mark.parametrize("zone", AT_MIDNIGHT)
def test_a_day_begins_when_the_clock_first_shows_its_date(zone: str) -> None:
    """Also where that is not midnight, or midnight comes twice."""
    random, calendar = Random(5), Calendar(CalendarUnit.DAY, zone)
    for _ in range(tries(300)):
        time = random.randint(millis(1900, 1, 1), millis(2036, 1, 1)) // 1000 * 1000
        start = calendar.last(time)
        shown = [datetime.fromtimestamp(one / 1000, ZoneInfo(zone)).date() for one in (start - 1000, start)]
        assert shown[0] < shown[1]
        assert datetime.fromtimestamp(time / 1000, ZoneInfo(zone)).date() <= max(shown[1], shown[0] + timedelta(1))


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("America/New_York", date(2026, 3, 8), 23),
        ("America/New_York", date(2026, 11, 1), 25),
        ("Australia/Lord_Howe", date(2026, 4, 5), 24.5),
        ("America/Sao_Paulo", date(2018, 11, 4), 23),
        ("America/St_Johns", date(2006, 10, 29), 25),
        ("America/Toronto", date(1919, 3, 31), 23.5),
        ("Pacific/Apia", date(2011, 12, 31), 24),
        ("Africa/Casablanca", date(2026, 2, 15), 25),
    ],
)
def test_days_on_which_clocks_change_are_shorter_or_longer(zone: str, day: date, hours: float) -> None:
    calendar = Calendar(CalendarUnit.DAY, zone)
    noon = round(datetime(day.year, day.month, day.day, 12, tzinfo=ZoneInfo(zone)).timestamp() * 1000)
    start = calendar.last(noon)
    assert (calendar.end(start) - start) / HOUR == hours
    assert calendar.end(start) - start <= calendar.longest


def test_a_date_that_a_zone_has_left_out_is_no_window() -> None:
    calendar = Calendar(CalendarUnit.DAY, "Pacific/Apia")
    before = calendar.last(millis(2011, 12, 30, 0))
    assert datetime.fromtimestamp(calendar.end(before) / 1000, ZoneInfo("Pacific/Apia")).date() == date(2011, 12, 31)


def test_the_calendar_repeats_itself_for_times_that_no_datetime_has() -> None:
    era = 146_097 * DAY
    for unit in CalendarUnit:
        calendar = Calendar(unit, "Europe/Berlin")
        for time in (millis(4800, 7, 4, 11), millis(1200, 7, 4, 11)):
            for eras in (30 if time > 0 else -30, 2000 if time > 0 else -2000):
                assert calendar.last(time + eras * era) == calendar.last(time) + eras * era
                assert calendar.end(calendar.last(time) + eras * era) == calendar.end(calendar.last(time)) + eras * era


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "windows",
    [
        TimeWindows("1 day", zone="America/St_Johns"),
        TimeWindows("1 week", zone="Pacific/Apia", week_start="saturday"),
        TimeWindows("1 month", zone="America/Toronto"),
        TimeWindows("1 year"),
        TimeWindows("7 hours", offset="2 hours"),
        TimeWindows("7 hours", advance="3 hours", offset="1 hour"),
    ],
    ids=lambda windows: str(windows.size),
)
def test_columns_of_times_are_placed_as_single_times_are(windows: TimeWindows, seed: int) -> None:
    random, grid = Random(seed), windows.grid
    near = random.randint(0, millis(2030, 1, 1))
    far = [drawn(random) for _ in range(50)]
    times = random.choice([[near + random.randint(-3 * DAY, 90 * DAY) for _ in range(300)], far, far[:1], []])
    column = np.array(times, np.int64)
    assert last_starts(windows, column).tolist() == [grid.last(time) for time in times]
    assert first_starts(windows, column, ALL_TIMES).tolist() == [grid.first(time) for time in times]
    ends = ends_of(windows, last_starts(windows, column))
    assert ends.tolist() == [grid.end(grid.last(time)) for time in times]
    for time in times:
        closed = windows.closed(time)
        assert grid.end(grid.last(closed)) <= time < grid.end(grid.next(closed))


def test_what_is_kept_of_windows_tells_where_they_begin_and_end() -> None:
    for windows in (
        TimeWindows("1 day", zone="Europe/Berlin"),
        TimeWindows("1 week", zone="UTC", week_start="sunday"),
        TimeWindows("1 week", week_start="monday"),
        TimeWindows("3 months"),
        TimeWindows("1 year", zone="UTC"),
        TimeWindows("1 hour", advance="10 minutes", offset="5 minutes"),
        TimeWindows("1 day"),
    ):
        assert grid_of({"windows": "TimeWindows", **windows.terms}) == windows.grid
    for terms in ({}, {"windows": "SlidingWindows", "difference": 5}, {"windows": "TimeWindows"}):
        assert grid_of(terms) is None
    assert grid_of({"windows": "TimeWindows", "size": 10}) == EvenGrid(10, 10, 0)
    for damaged in ({"size": "2 months"}, {"size": 10, "zone": "UTC"}):
        with pytest.raises(CorruptStoreError, match="describe windows that do not exist"):
            grid_of({"windows": "TimeWindows", **damaged})
    micros = grid_of({"windows": "_TimeWindows", "size": DAY * 1000, "zone": "UTC", "week_start": ""})
    assert micros == Calendar(CalendarUnit.DAY, "UTC", scale=TimeUnit.MICROSECOND)


@pytest.mark.parametrize("zone", ["", "Berlin", "../etc/passwd", "Europe", "\0", 5, None])
def test_what_is_no_zone_is_refused(zone: object) -> None:
    with pytest.raises(ConfigurationError, match="such as zone='Europe/Berlin'"):
        zone_of(zone)


def test_users_write_windows_of_the_calendar_in_the_words_of_spark() -> None:
    def unit(size: object) -> CalendarUnit | None:
        calendar = TimeWindows(size, zone="UTC").calendar  # type: ignore[arg-type]
        return None if calendar is None else calendar.unit

    assert [unit(size) for size in ("1 day", "24 hours", DAY, timedelta(days=1), " Interval  1 DAY ")] == [
        CalendarUnit.DAY
    ] * 5
    assert [unit(size) for size in ("1 week", "7 days", 7 * DAY)] == [CalendarUnit.WEEK] * 3
    assert [unit(size) for size in ("1 month", "3 months", "1 quarter", "1 year", "12 months")] == [
        CalendarUnit.MONTH, CalendarUnit.QUARTER, CalendarUnit.QUARTER, CalendarUnit.YEAR, CalendarUnit.YEAR,
    ]  # fmt: skip
    assert TimeWindows("1 day").calendar is None
    with pytest.raises(ConfigurationError, match=r"week_start is 'Sun'; give one of 'monday', .*, 'sunday'"):
        TimeWindows("1 week", week_start="Sun")
    assert TimeWindows("1 day", zone="UTC", advance="1 day").calendar is not None


def test_a_store_and_its_keys_end_windows_as_the_calendar_does() -> None:
    calendar = Calendar(CalendarUnit.DAY, "America/New_York")
    starts = [calendar.last(millis(2026, 3, day, 12)) for day in (7, 8, 9)]
    ends = [*starts[1:], calendar.end(starts[-1])]
    assert [(end - start) // HOUR for start, end in zip(starts, ends, strict=True)] == [24, 23, 24]
    limits: dict[str, Any] = {"retention": 10**10, "window_size": calendar.longest, "calendar": calendar}
    spec = StoreSpec("days", StoreKind.WINDOW, STRING, INT64, **limits)
    with Transaction(MemoryBackend()) as transaction:
        store = spec.open(transaction)
        for start in starts:
            store.put("a", 1, start)  # type: ignore[attr-defined]
        found = [key for key, _ in store.fetch_all()]  # type: ignore[attr-defined]
    assert found == [Windowed("a", *bounds) for bounds in zip(starts, ends, strict=True)]
    keys = TimeWindowedSerde(STRING, calendar.longest, calendar)
    assert [keys.deserialize(keys.serialize(key)) for key in found] == found
    with pytest.raises(SerdeError, match="is no window of 82800000 ms"):
        keys.serialize(Windowed("a", starts[1], starts[1] + DAY))
