"""What the demo must say, computed another way: pandas' as-of join over the package's own files.

Shares nothing with the job but the data's package and, for the lesson, the order in which the flights arrive.
"""

from dataclasses import dataclass

import pandas as pd

from millpond.demo import data

MEASURES = ["temp", "wind_speed", "precip", "visib"]
FLIGHT = ["carrier", "flight", "tailnum", "origin", "dest", "sched_dep_ms"]
COLUMNS = [*FLIGHT, "weather_time_ms", *MEASURES]
KEY = ["sched_dep_ms", "carrier", "flight", "origin", "dest"]
"""No two flights agree in all of these."""


@dataclass(frozen=True)
class Lesson:
    """What an unversioned table, which knows only the latest observation, would have given the flights."""

    wrong_hour: float
    """The share of flights joined with another observation than that of their departure."""
    wrong_values: float
    """The share of flights for which some measure (temperature, wind, rain, visibility) is another one, too."""


def flights_with_weather() -> pd.DataFrame:
    """Every flight with the latest observation at or before its scheduled departure, in the order of ``KEY``."""
    flights = pd.read_csv(data.package_file("flights.csv.zip"))
    flights["sched_dep_ms"] = _epoch_ms(flights["time_hour"]) + flights["minute"] * 60_000
    joined = _as_of(flights[FLIGHT], "sched_dep_ms")
    return joined[COLUMNS].sort_values(KEY, ignore_index=True)


def flights_by_carrier() -> dict[str, int]:
    """How many flights each carrier has."""
    counts = pd.read_csv(data.package_file("flights.csv.zip"), usecols=["carrier"])["carrier"].value_counts()
    return {str(carrier): int(count) for carrier, count in counts.items()}


def lesson(truth: pd.DataFrame) -> Lesson:
    """Compare ``truth`` with the latest observation that was there when each flight arrived."""
    arriving = data.flights().to_pandas()
    latest = _as_of(arriving, "arrival_ms").sort_values(KEY, ignore_index=True)
    same_hour = _same(truth["weather_time_ms"], latest["weather_time_ms"])
    same_values = pd.concat([_same(truth[name], latest[name]) for name in MEASURES], axis="columns").all(axis="columns")
    return Lesson(wrong_hour=float(1 - same_hour.mean()), wrong_values=float(1 - same_values.mean()))


def _as_of(flights: pd.DataFrame, time: str) -> pd.DataFrame:
    weather = pd.read_csv(data.package_file("weather.csv"), usecols=["origin", "time_hour", *MEASURES])
    weather["weather_time_ms"] = _epoch_ms(weather["time_hour"])
    return pd.merge_asof(
        flights.sort_values(time, kind="stable"),
        weather.sort_values("weather_time_ms"),
        left_on=time,
        right_on="weather_time_ms",
        by="origin",
    )


def _epoch_ms(column: pd.Series) -> pd.Series:
    return pd.to_datetime(column, utc=True).astype("datetime64[ms, UTC]").astype("int64")


def _same(left: pd.Series, right: pd.Series) -> pd.Series:
    return (left == right) | (left.isna() & right.isna())
