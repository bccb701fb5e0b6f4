"""Records per second through the in-process driver, one core, and where the time goes.

Rule of this module: input batches are made before the clock starts; what is timed is a micro-batch as the driver runs
it: processing, commit to the backend, and taking the results. Values are dicts of five fields, or columns of them where
a case says so. Next to each figure is that of the same work on plain dicts in this process: no bytes, no store, nothing
that would survive.
"""

import cProfile
import pstats
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from millpond.bench.measure import rate, seconds, without_gc
from millpond.bench.processor_cases import CASES, Case, Value
from millpond.processors import Batch, TopologyDriver

TOP_FUNCTIONS = 12


@dataclass(frozen=True)
class Workload:
    """What is sent: ``records`` records of ``keys`` keys, ``batch_rows`` in a micro-batch.

    Times rise by ``step`` milliseconds per record; ``seed`` makes it repeatable.
    """

    records: int
    keys: int
    batch_rows: int
    seed: int = 1
    step: int = 1000

    def batches(self, records: int | None = None) -> list[Batch]:
        """The records, in micro-batches."""
        made = random.Random(self.seed)
        rows = ((f"key-{made.randrange(self.keys):07d}", _value(made), time) for time in self._times(records))
        return list(_batched(rows, self.batch_rows))

    def table(self, versions: int) -> list[Batch]:
        """Every key ``versions`` times, spread over the time of the records."""
        made = random.Random(self.seed + 1)
        step = self.records * self.step // max(versions, 1)
        rows = ((f"key-{i:07d}", _value(made), step * version) for version in range(versions) for i in range(self.keys))
        return list(_batched(rows, self.batch_rows))

    def _times(self, records: int | None) -> Iterator[int]:
        return (i * self.step for i in range(records or self.records))


def run(
    backends: Sequence[str] = ("memory", "lmdb"),
    *,
    records: int = 200_000,
    keys: int = 20_000,
    batch_rows: int = 10_000,
    rounds: int = 3,
    profile: bool = True,
    directory: Path | None = None,
) -> dict[str, Any]:
    """Measure every case on every backend; ``directory`` is where the backends' files go."""
    workload = Workload(records, keys, batch_rows)
    report: dict[str, Any] = {
        "workload": {"records": records, "keys": keys, "batch_rows": batch_rows, "rounds": rounds},
        "results": [],
        "profiles": [],
    }
    for case in CASES:
        table, batches = workload.table(case.versions), workload.batches()
        plain = rate(records, [seconds(lambda: case.peer(table)(batches)) for _ in range(rounds)])  # noqa: B023
        for backend in backends:
            taken = [driven_seconds(case, backend, table, batches, directory) for _ in range(rounds)]
            per_second = rate(records, taken)
            report["results"].append(
                {
                    "case": case.name,
                    "backend": backend,
                    "per_second": per_second,
                    "dicts_per_second": plain,
                    "us_per_record": 1e6 / per_second,
                }
            )
            if profile:
                report["profiles"].append(
                    {
                        "case": case.name,
                        "backend": backend,
                        "functions": _profile(case, backend, table, batches, directory),
                    }
                )
    return report


def print_results(console: Console, report: Mapping[str, Any]) -> None:
    """The figures, and for each the functions in which the time went."""
    table = Table(title="records through the driver, one core")
    for column in ("case", "backend", "records/s", "us/record", "plain dicts/s"):
        table.add_column(column, justify="left" if column in ("case", "backend") else "right")
    for row in report["results"]:
        table.add_row(
            row["case"],
            row["backend"],
            f"{row['per_second']:,.0f}",
            f"{row['us_per_record']:.2f}",
            f"{row['dicts_per_second']:,.0f}",
        )
    console.print(table)
    for profile in report["profiles"]:
        console.print(_profile_table(profile))


def _profile_table(profile: Mapping[str, Any]) -> Table:
    table = Table(title=f"profile: {profile['case']} on {profile['backend']} (the profiler slows calls down)")
    for column in ("function", "calls/record", "us/record", "with callees"):
        table.add_column(column, justify="left" if column == "function" else "right")
    for row in profile["functions"]:
        table.add_row(
            row["function"],
            f"{row['calls_per_record']:.2f}",
            f"{row['own_us']:.2f}",
            f"{row['cumulative_us']:.2f}",
        )
    return table


def _driven(
    case: Case, backend: str, table: Sequence[Batch], batches: Sequence[Batch], directory: Path | None
) -> Iterator[Callable[[], None]]:
    """Yields, once, the timed part as a function, with the driver open and the table loaded."""
    with (
        tempfile.TemporaryDirectory(dir=directory) as local_dir,
        TopologyDriver(case.build(), backend=backend, local_dir=local_dir) as driver,
    ):
        for batch in table if case.versions else ():
            driver.pipe_batch("table", case.sent(batch))
        driver.read_runs("out")
        sent = list(map(case.sent, batches))

        def work() -> None:
            for run in sent:
                driver.pipe_batch("in", run)
                driver.read_runs("out")

        yield work


def driven_seconds(
    case: Case, backend: str, table: Sequence[Batch], batches: Sequence[Batch], directory: Path | None
) -> float:
    """How long the batches take, after those of the table."""
    for work in _driven(case, backend, table, batches, directory):
        with without_gc():
            return seconds(work)
    raise AssertionError("there is one round")


def _profile(
    case: Case, backend: str, table: Sequence[Batch], batches: Sequence[Batch], directory: Path | None
) -> list[dict[str, Any]]:
    profiler = cProfile.Profile()
    for work in _driven(case, backend, table, batches, directory):
        profiler.runcall(work)
    records = sum(map(len, batches))
    stats: Any = pstats.Stats(profiler)
    rows = sorted(stats.stats.items(), key=lambda entry: entry[1][2], reverse=True)
    return [
        {
            "function": _function_name(*where),
            "calls_per_record": calls / records,
            "own_us": own * 1e6 / records,
            "cumulative_us": cumulative * 1e6 / records,
        }
        for where, (_, calls, own, cumulative, _) in rows[:TOP_FUNCTIONS]
    ]


def _function_name(file: str, line: int, name: str) -> str:
    return name if file == "~" else f"{'/'.join(Path(file).parts[-2:])}:{line} {name}"


def _value(made: random.Random) -> Value:
    return {
        "carrier": made.choice(("UA", "B6", "DL", "AA")),
        "flight": made.randrange(10_000),
        "distance": made.random() * 3000,
        "delayed": made.random() < 0.2,
        "tail": f"N{made.randrange(99_999)}",
    }


def _batched(rows: Iterator[tuple[str, Value, int]], size: int) -> Iterator[Batch]:
    while some := list(islice(rows, size)):
        keys, values, timestamps = (list(column) for column in zip(*some, strict=True))
        yield Batch(keys, values, timestamps)
