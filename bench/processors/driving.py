"""Records through a topology by the in-process driver, or through the same work on dicts, with a clock at each batch.

Rule of this module: input batches are made before the clock starts. What is timed is a micro-batch as the driver runs
it: processing, commit to the backend, and taking the results. Values are dicts of five fields, or columns of them where
a case says so.
"""

import cProfile
import pstats
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns, process_time
from typing import Any, Final, Generic, TypeVar

from millpond.bench.measure import peak_bytes, reset_peak, seconds, without_gc
from millpond.bench.processors.cases import Case
from millpond.processors import Batch, TopologyDriver

TOP_FUNCTIONS: Final = 12

Sent = TypeVar("Sent")


class Clock(Generic[Sent]):
    """Gives batches one by one, and looks at the clock whenever the next one is asked for.

    The caller works on each batch before it asks for the next, and asks until there is none.

    Args:
        batches: what to give.
        warm_up: how many of them do not count.

    Attributes:
        times: nanoseconds of each batch that counts.
        cpu_s: seconds of the processor, of all threads, for those.
        peak_rss_bytes: the most memory meanwhile.
    """

    def __init__(self, batches: Sequence[Sent], warm_up: int) -> None:
        self.times: list[int] = []
        self.cpu_s = 0.0
        self.peak_rss_bytes = 0
        self._batches = batches
        self._warm_up = warm_up

    def __iter__(self) -> Iterator[Sent]:
        yield from self._batches[: self._warm_up]
        reset_peak()
        processor, since = process_time(), perf_counter_ns()
        for batch in self._batches[self._warm_up :]:
            yield batch
            now = perf_counter_ns()
            self.times.append(now - since)
            since = now
        self.cpu_s, self.peak_rss_bytes = process_time() - processor, peak_bytes()


def time_plain(case: Case, table: Sequence[Batch], batches: Sequence[Batch], warm_up: int) -> Clock[Batch]:
    """Return the work on dicts."""
    clock = Clock(batches, warm_up)
    work = case.peer(table)
    with without_gc():
        work(clock)
    return clock


def time_driven(
    case: Case, backend: str, table: Sequence[Batch], batches: Sequence[Batch], warm_up: int, local_dir: Path
) -> Clock[Any]:
    """Return the work of the topology, with its stores in ``local_dir``; the batches come after those of the table."""
    clock = Clock(list(map(case.sent, batches)), warm_up)
    with _loaded(case, backend, table, local_dir) as driver, without_gc():
        _send(driver, clock)
    return clock


def driven_seconds(
    case: Case, backend: str, table: Sequence[Batch], batches: Sequence[Batch], directory: Path | None
) -> float:
    """Return the seconds of the batches, without the table's; stores get their own directory in ``directory``."""
    sent = list(map(case.sent, batches))
    with (
        tempfile.TemporaryDirectory(dir=directory) as local_dir,
        _loaded(case, backend, table, Path(local_dir)) as driver,
        without_gc(),
    ):
        return seconds(lambda: _send(driver, sent))


def profile(
    case: Case, backend: str, table: Sequence[Batch], batches: Sequence[Batch], local_dir: Path
) -> list[dict[str, Any]]:
    """Return the functions in which the time goes, those that take most of it first; the profiler slows calls down."""
    profiler, sent = cProfile.Profile(), list(map(case.sent, batches))
    with _loaded(case, backend, table, local_dir) as driver:
        profiler.runcall(_send, driver, sent)
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


@contextmanager
def _loaded(case: Case, backend: str, table: Sequence[Batch], local_dir: Path) -> Iterator[TopologyDriver]:
    """The driver, open, and with the table in it."""
    with TopologyDriver(case.build(), backend=backend, local_dir=local_dir) as driver:
        for batch in table if case.versions else ():
            driver.pipe_batch("table", case.sent(batch))
        driver.read_runs("out")
        yield driver


def _send(driver: TopologyDriver, batches: "Clock[Any] | Sequence[Any]") -> None:
    for batch in batches:
        driver.pipe_batch("in", batch)
        driver.read_runs("out")


def _function_name(file: str, line: int, name: str) -> str:
    return name if file == "~" else f"{'/'.join(Path(file).parts[-2:])}:{line} {name}"
