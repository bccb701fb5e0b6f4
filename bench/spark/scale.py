"""The cost of much state to a query on Spark: successive micro-batches, restarts, restores, files, look-ups.

Rule of this module: each start of the query is in a session of its own, with Python workers that have nothing open, and
the first micro-batch of each is told apart. Files are counted when the query has ended.
"""

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from millpond.adapters.inspect import StateInspector
from millpond.adapters.inspect.sizes import state_size
from millpond.bench.durability.upgrade import WARM
from millpond.bench.measure import bytes_below, seconds
from millpond.bench.spark.counting import TIMESTAMPED, Feed, Query, Ran
from millpond.bench.spark.growth import growth
from millpond.bench.spark.inspecting import MISSING, look_up
from millpond.bench.spark.queries import scratch, session
from millpond.bench.spark.workers import workers_of_its_own
from millpond.stores.backend.registry import supplier

FILLING: Final = 10
"""The number of micro-batches that bring the keys, equally many each."""

AFTERWARDS: Final = 5
"""The number of micro-batches after the first one of a restart."""

LOOK_UPS: Final = 5
"""The number of look-ups of a key."""


def run(
    backend: str,
    keys: int,
    *,
    partitions: int = 16,
    rows: int = 100_000,
    batches: int = 50,
    small_rows: int = 1_000,
    small_batches: int = 300,
    cores: int = 2,
    seed: int = 1,
    directory: Path | None = None,
) -> dict[str, Any]:
    """Count ``keys`` keys, then let micro-batches go on, restart, lose the local copies and look keys up.

    Args:
        backend: a name or URL.
        keys: of the store.
        partitions: tasks of the query.
        rows: updates of a micro-batch.
        batches: how many of these.
        small_rows: updates of a small micro-batch.
        small_batches: how many of these.
        cores: of Spark.
        seed: of all chance.
        directory: where the files go; by default the temporary directory.
    """
    with scratch(directory) as temporary:
        place = Path(temporary)
        feed = Feed(place, keys, rows, filling=FILLING, files=cores, seed=seed)
        phases: dict[str, dict[str, Any]] = {}
        with session(cores, partitions) as spark:
            query = Query(spark, feed, backend, place / "query")
            with workers_of_its_own(spark) as watch:
                watch.start()
                phases["filling"] = _phase(query.run(TIMESTAMPED, FILLING), -(-keys // FILLING))
                phases["updates"] = _phase(query.run(TIMESTAMPED, 1 + batches), rows)
                deltas = _deltas(place / "query")
                feed.rows = small_rows
                phases["small updates"] = _phase(query.run(TIMESTAMPED, 1 + small_batches), small_rows)
                memory = watch.stop()
        with session(cores, partitions) as spark:
            query = query.within(spark)
            phases["after a restart"] = _phase(query.run(TIMESTAMPED, 1 + AFTERWARDS), small_rows)
        copies = bytes_below(place / "query" / "local")
        if supplier(backend).persistent:
            query, stood_by = _with_a_standby(query, cores, partitions, small_rows)
            phases |= stood_by
        for local in ("local", WARM):
            shutil.rmtree(place / "query" / local, ignore_errors=True)
        with session(cores, partitions) as spark:
            query = query.within(spark)
            phases["after the loss of the local copies"] = _phase(query.run(TIMESTAMPED, 1 + AFTERWARDS), small_rows)
        return {
            "backend": backend,
            "persistent": supplier(backend).persistent,
            "keys": keys,
            "partitions": partitions,
            "seed": seed,
            "cores": cores,
            "phases": phases,
            "worker_bytes": {"resident": memory.resident, "own": memory.own},
            "files": _files(query, place / "query", deltas, rows) | {"local_bytes": copies},
            "look_up_s": _look_ups(query, keys),
        }


def print_results(console: Console, figures: Mapping[str, Any]) -> None:
    """Print a row per phase, and sentences on files and look-ups."""
    title = f"{figures['backend']}: {figures['keys']:,} keys, {figures['partitions']} tasks, {figures['cores']} cores"
    table = Table(title=title)
    table.add_column("phase")
    for column in ("rows", "micro-batches", "first, s", "p50, s", "p90, s", "longest, s", "last / first", "restored"):
        table.add_column(column, justify="right")
    for name, phase in figures["phases"].items():
        times = [f"{phase[what]:.2f}" for what in ("first_s", "p50_s", "p90_s", "max_s", "growth")]
        table.add_row(name, f"{phase['rows']:,}", str(phase["batches"]), *times, f"{phase['restored_rows']:,}")
    console.print(table)
    files = figures["files"]
    console.print(
        f"State: {files['bytes'] >> 20:,} MiB in {files['count']:,} files, {files['retained_bytes'] >> 20:,} MiB in "
        f"{files['retained_count']:,} with all {files['retained_batches']} micro-batches that are retained; local "
        f"copies {files['local_bytes'] >> 20:,} MiB. A delta takes {files['delta_bytes_per_row']:.1f} bytes for each "
        f"row that was changed. Spark's checkpoint: {files['checkpoint_count']:,} files."
    )
    memory = figures["worker_bytes"]
    console.print(
        f"A worker had at most {memory['resident'] >> 20:,} MiB, {memory['own'] >> 20:,} of its own. millpond state "
        f"get takes {figures['look_up_s']['found']:.2f} s, {figures['look_up_s']['missing']:.2f} s for a missing key."
    )


def _with_a_standby(query: Query, cores: int, partitions: int, rows: int) -> tuple[Query, dict[str, dict[str, Any]]]:
    """Run micro-batches beside a standby, and of the query that takes over its copies; return query and figures."""
    with session(cores, partitions) as spark:
        query = query.within(spark)
        with query.stood_by("TIMESTAMPED"):
            beside = _phase(query.run(TIMESTAMPED, 1 + AFTERWARDS), rows)
    with session(cores, partitions) as spark:
        query = query.within(spark)
        taken_over = _phase(query.run(TIMESTAMPED, 1 + AFTERWARDS, local=WARM), rows)
    return query, {"beside a standby": beside, "taken over from a standby": taken_over}


def _phase(ran: Sequence[Ran], rows: int) -> dict[str, Any]:
    """Return figures of micro-batches from a start on, the first one apart; ``growth`` compares last and first."""
    first, *others = (one.batch.seconds["wall"] for one in ran)
    return {
        "rows": rows,
        "batches": len(others),
        "first_s": first,
        "p50_s": median(others),
        "p90_s": quantiles(others, n=10, method="inclusive")[-1],
        "max_s": max(others),
        "growth": growth(others),
        "seconds": others,
        "snapshots": sum(one.batch.snapshot for one in ran),
        "restored_rows": sum(one.restored for one in ran),
    }


def _deltas(directory: Path) -> list[int]:
    """Return the bytes of each delta of the query in ``directory``."""
    return [path.stat().st_size for path in (directory / "state").rglob("*.delta.parquet")]


def _files(query: Query, directory: Path, deltas: Sequence[int], rows: int) -> dict[str, Any]:
    """Return the size of the durable state; ``deltas`` belong to micro-batches of ``rows`` rows, as far as retained."""
    found = state_size(StateInspector.at(query.checkpoint, query.state_dir))
    tasks = len(found.tasks)
    return {
        "count": sum(task.files for task in found.tasks),
        "bytes": found.size,
        "retained_batches": found.batches,
        "retained_count": found.retained_files,
        "retained_bytes": found.retained_size,
        "shared_bytes": found.shared_size,
        "delta_bytes_per_row": median(deltas) * tasks / rows if deltas else 0.0,
        "checkpoint_count": sum(1 for path in (directory / "checkpoint").rglob("*") if path.is_file()),
    }


def _look_ups(query: Query, keys: int) -> dict[str, float]:
    """Return the median seconds that ``millpond state get`` takes, from the start of its process to the end."""
    known = [f"user-{keys * part // LOOK_UPS:08d}" for part in range(LOOK_UPS)]
    return {
        "found": median(seconds(partial(look_up, query, key)) for key in known),
        "missing": median(seconds(partial(look_up, query, MISSING, 1)) for _ in known),
    }
