"""The results that the demo must find, computed another way: pandas' as-of join over the package's own files.

It shares nothing with the job but the data's package and, for the lesson, the order in which the flights arrive.
"""

from dataclasses import dataclass, replace

import pandas as pd

from millpond.demo import data

MEASURES = ["temp", "wind_speed", "precip", "visib"]
FLIGHT = ["carrier", "flight", "tailnum", "origin", "dest", "sched_dep_ms"]
COLUMNS = [*FLIGHT, "weather_time_ms", *MEASURES]
KEY = ["sched_dep_ms", "carrier", "flight", "origin", "dest"]
"""No two flights agree in all of these."""


@dataclass(frozen=True)
class Lesson:
    """The errors of an unversioned table, which would know only the latest observation, for the flights."""

    wrong_hour: float
    """The share of flights joined with an observation other than that of their departure."""
    wrong_values: float
    """The share of flights for which some measure (temperature, wind, rain, visibility) differs as well."""


@dataclass(frozen=True)
class Agreement:
    """The agreement of a query's rows with the truth."""

    expected: int
    equal: int
    surplus: int
    """Rows that should not be there: those of unknown flights, and duplicates."""

    @property
    def complete(self) -> bool:
        """True if each expected row is there once, and nothing else."""
        return self.equal == self.expected and self.surplus == 0


def flights_with_weather(arrived: int | None = None) -> pd.DataFrame:
    """Return every flight with the latest observation at or before its scheduled departure, in the order of ``KEY``.

    ``arrived`` keeps only as many flights, those that arrive first.
    """
    flights = pd.read_csv(data.package_file("flights.csv.zip"))
    flights["sched_dep_ms"] = _epoch_ms(flights["time_hour"]) + flights["minute"] * 60_000
    joined = _as_of(flights[FLIGHT], "sched_dep_ms")[COLUMNS]
    if arrived is not None:
        joined = joined.merge(data.flights().slice(0, arrived).to_pandas()[KEY], on=KEY)
    return joined.sort_values(KEY, ignore_index=True)


def carrier_counts(flights: pd.DataFrame) -> pd.DataFrame:
    """Return the number of the flights of each carrier, and the departure of the latest of them."""
    return flights.groupby("carrier").agg(count=("flight", "size"), timestamp=("sched_dep_ms", "max")).reset_index()


def compare_flights(rows: pd.DataFrame, truth: pd.DataFrame) -> Agreement:
    """Compare joined flights with ``truth``, column by column."""
    return _compare(rows, truth, KEY)


def compare_counts(rows: pd.DataFrame, truth: pd.DataFrame) -> Agreement:
    """Compare each carrier's last count with ``truth``; earlier counts are not surplus."""
    last = rows.sort_values("count").drop_duplicates("carrier", keep="last")
    repeated = int(rows.duplicated(["carrier", "count"]).sum())
    agreement = _compare(last, truth, ["carrier"])
    return replace(agreement, surplus=agreement.surplus + repeated)


def lesson(truth: pd.DataFrame) -> Lesson:
    """Compare ``truth`` with the latest observation that was there when each flight arrived."""
    arriving = data.flights().to_pandas()
    latest = _as_of(arriving, "arrival_ms").sort_values(KEY, ignore_index=True)
    same_hour = _same(truth["weather_time_ms"], latest["weather_time_ms"])
    same_values = pd.concat([_same(truth[name], latest[name]) for name in MEASURES], axis="columns").all(axis="columns")
    return Lesson(wrong_hour=float(1 - same_hour.mean()), wrong_values=float(1 - same_values.mean()))


def _compare(rows: pd.DataFrame, truth: pd.DataFrame, key: list[str]) -> Agreement:
    once = rows.drop_duplicates(key)
    both = truth.merge(once, on=key, how="inner", suffixes=("", "_found"))
    equal = pd.Series(True, index=both.index)
    for name in truth.columns.difference(key):
        equal &= _same(both[name], both[f"{name}_found"])
    return Agreement(expected=len(truth), equal=int(equal.sum()), surplus=len(rows) - len(both))


def _as_of(flights: pd.DataFrame, time: str) -> pd.DataFrame:
    columns = ["origin", "time_hour", *MEASURES]
    weather = pd.read_csv(data.package_file("weather.csv"), usecols=columns, float_precision="round_trip")
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
