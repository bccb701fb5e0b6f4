"""The time of a look at state: whole ``millpond state`` commands, and the same by DataFrames of a running session.

Rule of this module: the query has ended, and nothing else runs. A command is timed from the start of its process to its
end. Each look is taken once before it counts, so files are in the system's memory, and Spark's JVM has seen its plan.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from millpond.adapters.spark import SparkStreams, register_state_source
from millpond.bench.measure import seconds
from millpond.bench.spark.counting import TIMESTAMPED, Feed, Query
from millpond.bench.spark.queries import scratch, session
from millpond.bench.spark.shapes import COUNTED
from millpond.errors import MillpondError

FILLING: Final = 10
"""The number of micro-batches that bring the keys, equally many each."""

UPDATES: Final = 5
"""The number of micro-batches of updates that follow."""

MISSING: Final = "nobody"
STORE: Final = "counts"

Look = Callable[[int], object]
"""Looks for the n-th time."""


def run(
    backend: str = "lmdb",
    keys: int = 1_000_000,
    *,
    partitions: int = 4,
    rows: int = 10_000,
    in_range: int = 1_000,
    looks: int = 5,
    cores: int = 2,
    seed: int = 1,
    directory: Path | None = None,
) -> dict[str, Any]:
    """Count ``keys`` keys in a query on Spark, then look at them.

    Args:
        backend: a name or URL.
        keys: of the store.
        partitions: tasks of the query.
        rows: updates of each of the last micro-batches.
        in_range: keys of a range that is scanned.
        looks: how often each look is taken.
        cores: of Spark.
        seed: of all chance.
        directory: where the files go; by default the temporary directory.
    """
    with scratch(directory) as temporary:
        place = Path(temporary)
        feed = Feed(place, keys, rows, filling=FILLING, files=cores, seed=seed)
        known = [_key(keys * part // (looks + 1)) for part in range(looks + 1)]
        since = perf_counter()
        with session(cores, partitions) as spark:
            started = perf_counter() - since
            query = Query(spark, feed, backend, place / "query")
            query.run(TIMESTAMPED, FILLING)
            query.run(TIMESTAMPED, UPDATES)
            on_spark = {name: _times(look, looks) for name, look in _on_spark(spark, query, known, in_range).items()}
        commands = {name: _times(look, looks) for name, look in _commands(query, known, in_range).items()}
        return {
            "backend": backend,
            "keys": keys,
            "partitions": partitions,
            "seed": seed,
            "in_range": in_range,
            "session_s": started,
            "looks": [
                {"by": by, "look": name, "median_s": median(times), "longest_s": max(times)}
                for by, found in (("millpond state", commands), ("Spark", on_spark))
                for name, times in found.items()
            ],
        }


def print_results(console: Console, figures: Mapping[str, Any]) -> None:
    """Print a row per look, and how long Spark takes to start."""
    tasks = f"{figures['keys']:,} keys in {figures['partitions']} tasks, {figures['backend']}"
    started = f"To start a session of Spark took {figures['session_s']:.1f} s, which is not in its rows."
    table = Table(title=f"looking at {tasks}", caption=started)
    for column in ("by", "look", "median, s", "longest, s"):
        table.add_column(column, justify="right" if column.endswith(" s") else "left")
    for row in figures["looks"]:
        table.add_row(row["by"], row["look"], f"{row['median_s']:.2f}", f"{row['longest_s']:.2f}")
    console.print(table)


def look_up(query: Query, key: str, expected: int = 0) -> None:
    """Run ``millpond state get`` of a key, as a process of its own.

    Args:
        query: whose store.
        key: which key.
        expected: the command's exit code: 0 for a key that is there, 1 for one that is not.

    Raises:
        MillpondError: the command ended otherwise.
    """
    _command(expected, "get", query.checkpoint, STORE, key, "--state-dir", query.state_dir)


def _commands(query: Query, known: Sequence[str], in_range: int) -> dict[str, Look]:
    places = query.checkpoint, STORE, "--state-dir", query.state_dir
    first, last = _range(known, in_range)
    ranged = partial(_command, 0, "scan", *places, "--from", first, "--to", last)
    return {
        "--version": lambda _: _run(0, "--version"),
        "get, found": lambda number: look_up(query, known[number]),
        "get, missing": lambda _: look_up(query, MISSING, 1),
        f"scan of {in_range:,} keys": lambda _: _check(ranged().count("\n") >= in_range, "scan"),
        "describe": lambda _: _command(0, "describe", *places),
    }


def _on_spark(spark: SparkSession, query: Query, known: Sequence[str], in_range: int) -> dict[str, Look]:
    """Look by the source of DataFrames, and by ``read_store``, with which Spark itself reads what it keeps of state."""
    register_state_source(spark)
    places = {"checkpoint": query.checkpoint, "state_dir": query.state_dir, "store": STORE}
    first, last = _range(known, in_range)
    streams = SparkStreams(TIMESTAMPED, application_id="bench", state_dir=query.state_dir)

    def rows(**options: str) -> DataFrame:
        return spark.read.format("millpond").options(**places, **options).load()

    def found(frame: DataFrame, key: str, expected: int) -> None:
        _check(len(frame.where(frame["key"] == key).collect()) == expected, key)

    def scanned() -> int:
        return len(rows(key_from=first, key_to=last).collect())

    return {
        "format('millpond'), a key that is found": lambda number: found(rows(), known[number], 1),
        "format('millpond'), a missing key": lambda _: found(rows(), MISSING, 0),
        f"format('millpond'), {in_range:,} keys": lambda _: _check(scanned() == in_range, "range"),
        "format('millpond'), count of all": lambda _: rows().count(),
        "read_store, a key that is found": lambda number: found(
            streams.read_store(STORE, query.checkpoint, schema=COUNTED), known[number], 1
        ),
    }


def _times(look: Look, looks: int) -> list[float]:
    look(0)
    return [seconds(partial(look, number)) for number in range(1, looks + 1)]


def _range(known: Sequence[str], in_range: int) -> tuple[str, str]:
    """Return the first key of a range, and the one after its last."""
    number = int(known[0].rpartition("-")[2])
    return _key(number), _key(number + in_range)


def _key(number: int) -> str:
    return f"user-{number:08d}"


def _command(expected: int, *arguments: str) -> str:
    return _run(expected, "state", *arguments)


def _run(expected: int, *arguments: str) -> str:
    """Run a ``millpond`` command; return what it prints if it ends as expected."""
    command = [sys.executable, "-c", "from millpond.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != expected:
        raise MillpondError(f"millpond {arguments[0]} ended with {done.returncode}: {done.stderr[-1000:]}")
    return done.stdout


def _check(right: bool, what: str) -> None:
    if not right:
        raise MillpondError(f"the look for {what} has not found what is there")
