"""One run of one contender on one topology, in a process of its own: ``python -m millpond.bench.processors.worker``.

Rule of this module: it is a program, which ``millpond.bench.runs.process`` starts.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.bench.measure import bytes_below
from millpond.bench.processors.cases import CASES
from millpond.bench.processors.driving import Clock, profile, time_driven, time_plain
from millpond.bench.processors.inputs import Sizes
from millpond.bench.runs.job import RunJob
from millpond.bench.runs.process import answer
from millpond.bench.runs.summary import latency_of_many, over_batches


@dataclass(frozen=True)
class Job(RunJob):
    """The run to make.

    Attributes:
        backend: its name or URL; None for the work on dicts.
        workload: the name of the topology.
        sizes: how much is sent.
        profiled: tell the functions in which the time goes, and nothing else.
    """

    backend: str | None
    workload: str
    sizes: Sizes
    profiled: bool


def measure(job: Job) -> dict[str, Any]:
    """Make the records, send them, and tell the figures of this run."""
    case, sizes, directory = CASES[job.workload], job.sizes, Path(job.directory)
    table, batches = sizes.table(case.versions), sizes.batches()
    if job.backend is None:
        return figures(time_plain(case, table, batches, sizes.warm_up_batches), sizes)
    if job.profiled:
        return {"functions": profile(case, job.backend, table, batches, directory)}
    clock = time_driven(case, job.backend, table, batches, sizes.warm_up_batches, directory)
    return {**figures(clock, sizes), "disk_bytes": bytes_below(directory)}


def figures(clock: "Clock[Any]", sizes: Sizes) -> dict[str, Any]:
    """Return the clock's figures of the records that count. A latency is that of a micro-batch."""
    return {
        "operations": sizes.records,
        "throughput": sizes.records / (sum(clock.times) / 1e9),
        "latency_us": latency_of_many(clock.times),
        "over_time": over_batches(clock.times, sizes.batch_lengths),
        "cpu_s": clock.cpu_s,
        "peak_rss_bytes": clock.peak_rss_bytes,
        "disk_bytes": None,
    }


if __name__ == "__main__":
    answer(Job.of, measure)
