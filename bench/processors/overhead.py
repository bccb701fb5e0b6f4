"""The cost of headers to a record, and of measuring to a micro-batch, in the in-process driver, on one core.

Rule of this module: what is compared runs in turn on the same records. What measuring takes is timed where it
measures, since nothing can run without it, and a little more than that is counted: the reading of one more clock.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any, Final
from unittest.mock import patch

from millpond.bench.measure import rate, seconds
from millpond.bench.processors.cases import CASES
from millpond.bench.processors.driving import driven_seconds
from millpond.bench.processors.inputs import Sizes
from millpond.metrics import Metrics, Stopwatch, StoreMetric
from millpond.processors import Batch, TopologyDriver
from millpond.processors.runtime.tasks.task import Task

HEADERS: Final = (("trace", b"00-4bf92f3577b34da6a3ce929d0e0e4736-01"), ("source", b"web"))
"""The headers of each record: an id of 38 bytes, and a word."""

WITH_HEADERS: Final = ("stream-table join", "count", "stream-stream left join")
"""The cases of ``millpond bench processors`` that are measured with headers, too."""

BATCH_ROWS: Final = 10_000

_MEASURING: Final = (
    (Metrics, "add"),
    (Metrics, "put"),
    (Metrics, "timed"),
    (Metrics, "clear"),
    (type(Metrics().timed(StoreMetric.OPEN_DURATION)), "__enter__"),
    (type(Metrics().timed(StoreMetric.OPEN_DURATION)), "__exit__"),
    (Stopwatch, "__init__"),
    (Stopwatch, "lap"),
    (Task, "measure_time"),
)
"""All that runs to measure something."""


def headers(
    backend: str, records: int, keys: int, *, rounds: int, directory: Path | None, seed: int = 1
) -> list[dict[str, Any]]:
    """Measure records per second without headers and with two, in turn: medians, and the second time over the first."""
    sizes = Sizes(records, keys, BATCH_ROWS, seed=seed)
    plain = sizes.batches()
    sent = {"without": plain, "with": list(map(_with_headers, plain))}
    rows = []
    for case in (CASES[name] for name in WITH_HEADERS):
        table = sizes.table(case.versions)
        taken: dict[str, list[float]] = {name: [] for name in sent}
        for number in range(rounds):
            for name in list(sent)[:: -1 if number % 2 else 1]:
                taken[name].append(driven_seconds(case, backend, table, sent[name], directory))
        rates = {f"{name}_per_second": rate(records, times) for name, times in taken.items()}
        times_longer = median(taken["with"]) / median(taken["without"])
        rows.append({"case": case.name, **rates, "times_longer": times_longer})
    return rows


def measuring(
    backend: str, keys: int, sizes: Sequence[int], *, batches: int, directory: Path | None, seed: int = 1
) -> list[dict[str, Any]]:
    """Measure micro-batches of so many records each: how long one takes, and how much of that is measuring."""
    case = CASES["count"]
    rows = []
    for size in sizes:
        (sent,) = Sizes(size, keys, size, seed=seed).batches()
        with (
            tempfile.TemporaryDirectory(dir=directory) as local_dir,
            TopologyDriver(case.build(), backend=backend, local_dir=local_dir) as driver,
        ):
            took, measured = zip(*(_one(driver, sent) for _ in range(batches)), strict=True)
        both = {"batch_us": median(took) * 1e6, "measuring_us": median(measured) * 1e6}
        rows.append({"records": size, **both, "share": both["measuring_us"] / both["batch_us"]})
    return rows


def _one(driver: TopologyDriver, batch: Batch) -> tuple[float, float]:
    """Return how long a micro-batch takes, and how long, when it comes again, something is measured."""

    def work() -> None:
        driver.pipe_batch("in", batch)
        driver.read_runs("out")

    took = seconds(work)
    with time_in_measuring() as spent:
        work()
    return took, spent.nanoseconds / 1e9


@dataclass
class Spent:
    """The time that something has run, each stretch once.

    Attributes:
        nanoseconds: so long.
        calls: how many stretches there were.
    """

    nanoseconds: int = 0
    calls: int = 0
    _inside: bool = False

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, with its time added, unless it is called by another one that is timed."""

        def run(*arguments: Any, **named: Any) -> Any:
            if self._inside:
                return function(*arguments, **named)
            self._inside = True
            since = perf_counter_ns()
            try:
                return function(*arguments, **named)
            finally:
                self.nanoseconds += perf_counter_ns() - since
                self.calls += 1
                self._inside = False

        return run


@contextmanager
def time_in_measuring() -> Iterator[Spent]:
    """Time the measuring that this process's only thread does in here."""
    spent = Spent()
    with ExitStack() as held:
        for owner, name in _MEASURING:
            held.enter_context(patch.object(owner, name, spent.timed(getattr(owner, name))))
        yield spent


def _with_headers(batch: Batch) -> Batch:
    return Batch(batch.keys, batch.values, batch.timestamps, headers=[HEADERS] * len(batch))


def table_rows(figures: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each measurement: its name, its time without and with, and how many times longer that is."""
    for row in figures["headers_in_process"]:
        both = (f"{1e6 / row[f'{name}_per_second']:.2f} us" for name in ("without", "with"))
        yield (f"headers, {row['case']}, a record", *both, f"{row['times_longer']:.3f}")
    for row in figures["measuring_in_process"]:
        without = row["batch_us"] - row["measuring_us"]
        label = f"measuring, a micro-batch of {row['records']:,} records"
        yield (label, f"{without:,.0f} us", f"{row['batch_us']:,.0f} us", f"{row['batch_us'] / without:.3f}")
