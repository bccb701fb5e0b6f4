"""Rows per second of a micro-batch by each contender, in one run.

Every contender reads the same files, one of each topic per micro-batch, in a query of its own, and writes to Spark's
``noop`` sink. They run in turn, in three rounds: one to warm up, one in order and one in reverse. The first
micro-batches of a query, in which processes start, do not count; the median of the others does.
"""

import tempfile
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console

from millpond.bench.spark.inputs import write_inputs
from millpond.bench.spark.queries import measure, session
from millpond.bench.spark.shapes import Scale
from millpond.bench.spark.workers import WorkerMemory
from millpond.bench.spark.workloads import TRANSFORM_WITH_STATE, chosen_contenders, workload_named

WARM_UP: Final = 2
"""Micro-batches that do not count."""


def run(
    workload: str = "count",
    *,
    rows: int = 1_000_000,
    keys: int = 200_000,
    backend: str = "lmdb",
    batches: int = 4,
    cores: int = 2,
    contenders: Collection[str] | None = None,
    directory: Path | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Measure one workload.

    Args:
        workload: one of ``WORKLOADS``.
        rows: rows per micro-batch.
        keys: distinct keys.
        backend: the one whose ratios to the peers are reported; the other built-in backends are measured as well.
        batches: how many micro-batches of each query are measured; one of ``transform_with_state``, which is slow.
        cores: Spark cores.
        contenders: measure only these of the workload's contenders.
        directory: where input and state go, on the file system to measure.
        console: where to report what is being measured.

    Returns:
        For each contender the seconds of its micro-batches and their median, rows per second, and the most bytes that
        one of its Python workers had, if it has some; the rows per second of ``backend`` over those of each peer.

    Raises:
        ConfigurationError: the workload or a contender is unknown.
    """
    found, scale = workload_named(workload), Scale(rows, keys)
    wanted = chosen_contenders(found, backend, contenders)
    seconds: dict[str, list[float]] = {name: [] for name in wanted}
    memory = dict.fromkeys(wanted, WorkerMemory())
    with tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=directory) as place, session(cores) as spark:
        write_inputs(Path(place), found.topics, scale, WARM_UP + batches)
        for number, names in enumerate(_rounds(list(wanted))):
            for name in names:
                if console is not None:
                    console.print(f"{'warming up with' if number == 0 else 'measuring'} {name} ...")
                skipped, counted = _micro_batches(name, batches, warming=number == 0)
                ran = measure(spark, Path(place), found, wanted[name], scale, skipped + counted)
                seconds[name] += ran.seconds[skipped:]
                memory[name] = memory[name].at_most(ran.memory)
    per_batch = {name: median(times) for name, times in seconds.items()}
    peers = [peer for peer in found.all_peers if {peer, backend} <= set(per_batch)]
    return {
        "workload": workload,
        "rows": rows,
        "keys": keys,
        "cores": cores,
        "backend": backend,
        "batch_seconds": seconds,
        "seconds_per_batch": per_batch,
        "rows_per_second": {name: rows / one for name, one in per_batch.items()},
        "ratios": {peer: per_batch[peer] / per_batch[backend] for peer in peers},
        "worker_bytes": {name: asdict(most) for name, most in memory.items() if most.resident},
    }


def _rounds(names: Sequence[str]) -> list[list[str]]:
    """Who runs when: all to warm up the JVM, then all, then all in reverse, so that nobody gains from its position.

    ``transform_with_state`` takes as long as all the others together, and runs once.
    """
    quick = [name for name in names if name != TRANSFORM_WITH_STATE]
    return [quick, list(names), quick[::-1]]


def _micro_batches(name: str, batches: int, *, warming: bool) -> tuple[int, int]:
    """How many micro-batches of a query do not count, and how many do."""
    if name == TRANSFORM_WITH_STATE:
        return 1, 1
    return WARM_UP, 0 if warming else batches
