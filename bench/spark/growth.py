"""Whether a micro-batch takes longer as state grows: many micro-batches, each with as many new keys as the last one.

Each contender runs once, in one query. The first micro-batches, in which processes start, do not count; the last ten of
the others are held against the first ten.
"""

import tempfile
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console

from millpond.bench.spark.inputs import write_inputs
from millpond.bench.spark.measure import WARM_UP
from millpond.bench.spark.queries import measure, session
from millpond.bench.spark.shapes import Scale
from millpond.bench.spark.workloads import MAP_IN_ARROW, SPARK_JVM, Workload, chosen_contenders, workload_named
from millpond.errors import ConfigurationError

COMPARED: Final = 10
"""How many micro-batches at either end are compared."""


def run(
    workload: str = "count",
    *,
    rows: int = 1_000_000,
    keys: int = 10_000_000,
    backend: str = "lmdb",
    batches: int = 50,
    cores: int = 2,
    contenders: Collection[str] | None = None,
    directory: Path | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Measure one workload while its keys grow.

    Args:
        workload: one of ``WORKLOADS``.
        rows: rows per micro-batch.
        keys: how many there are in the end.
        backend: of Millpond, and of the verb.
        batches: how many micro-batches there are after those that warm up.
        cores: Spark cores.
        contenders: measure these of the workload's contenders; by default the backend, Spark's JVM operator if the
            workload has one, and the pass-through, which shows how the machine varied.
        directory: where input and state go, on the file system to measure.
        console: where to report what is being measured.

    Returns:
        For each contender the seconds of its micro-batches without the first ones, the ratio of the last to the first
        of them, and the most bytes that one of its Python workers had, if it has some.

    Raises:
        ConfigurationError: the workload or a contender is unknown, there are fewer than two micro-batches, or they
            have too few rows for so many keys.
    """
    if batches < 2:
        raise ConfigurationError(f"growth is seen from the first micro-batches to the last ones, not in {batches}")
    found, scale = workload_named(workload), Scale(rows, keys)
    wanted = chosen_contenders(found, backend, contenders or _default(found, backend))
    files = WARM_UP + batches
    seconds, memory = {}, {}
    with tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=directory) as place, session(cores) as spark:
        write_inputs(Path(place), found.topics, scale, files, growing=True)
        for name, contender in wanted.items():
            if console is not None:
                console.print(f"measuring {name} ...")
            ran = measure(spark, Path(place), found, contender, scale, files)
            seconds[name], memory[name] = ran.seconds[WARM_UP:], ran.memory
    return {
        "workload": workload,
        "rows": rows,
        "keys": keys,
        "cores": cores,
        "backend": backend,
        "batch_seconds": seconds,
        "growth": {name: growth(times) for name, times in seconds.items()},
        "worker_bytes": {name: asdict(most) for name, most in memory.items() if most.resident},
    }


def ends(seconds: Sequence[float]) -> tuple[float, float]:
    """The median of the first micro-batches and that of the last ones, which are others."""
    compared = min(COMPARED, len(seconds) // 2)
    return median(seconds[:compared]), median(seconds[-compared:])


def growth(seconds: Sequence[float]) -> float:
    """The time of the last micro-batches over that of the first ones."""
    first, last = ends(seconds)
    return last / first


def _default(workload: Workload, backend: str) -> list[str]:
    return [name for name in workload.contenders(backend) if name in (backend, SPARK_JVM, MAP_IN_ARROW)]
