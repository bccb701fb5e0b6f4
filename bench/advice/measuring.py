"""Short runs of the candidates on this machine, of the described shape and scaled down to a budget of time.

Rule of this module: it measures by ``millpond.bench.engines`` and by ``footprint``, and judges nothing. Whatever fails
becomes the reason why a candidate has no figures.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Final, TypeAlias

from millpond.bench.advice.candidates import Candidate, faster
from millpond.bench.advice.description import Description
from millpond.bench.advice.footprint import room_of
from millpond.bench.advice.judgement import per_operation
from millpond.bench.advice.measured import Measured, Room, Spread, Times
from millpond.bench.documents import Document, parsed_document
from millpond.bench.engines.contenders import Contender, backend_contenders
from millpond.bench.engines.run import Contest, run
from millpond.bench.engines.workloads import Sizes
from millpond.bench.report import document

READ, WRITE, SEEK, STEP, EXPIRE = "readrandom", "overwrite", "seekrandom", "readseq", "turnover"
"""The workloads that the operations of a mix are measured by."""

_PROBE_ROWS: Final = 1_000
_LEAST_ROWS: Final = 10_000
"""The least rows; with fewer, scaled caches would be smaller than a few blocks, whatever the time."""
_PROBE_OPERATIONS: Final = 500
_MOST_BYTES: Final = 2**29
_LEAST_OPERATIONS: Final = 500
_ROOM_ROWS: Final = 50_000
_OPERATIONS_PER_ROW: Final = 0.55
"""Operations of a run, those of its warm-up included, for each row of its store."""

_MADE_S: Final = 12e-6
"""Seconds that Python takes in each run for a row: its key, its value, its place in the plan."""

Say: TypeAlias = Callable[[str], None]
"""Called with what is being done."""


class Backends(Contest):
    """A contest of backends alone, without the engines under them."""

    def taking_part(self) -> list[Contender]:
        """Return only the backends."""
        return backend_contenders(self.backends, self.use)


@dataclass(frozen=True)
class Effort:
    """The extent of the measurements.

    Args:
        seconds: about how long it may take.
        repeat: runs of each workload.
        seed: of all chance.
        directory: on the file system to measure; the temporary directory by default.
    """

    seconds: float
    repeat: int = 3
    seed: int = 1
    directory: Path | None = None


@dataclass(frozen=True)
class Measurements:
    """The measurements of the candidates, and the settings that they were made with.

    Attributes:
        backends: in the order of the candidates.
        settings: what reports say of how it was measured.
        rows: the rows of the stores whose operations were timed.
    """

    backends: tuple[Measured, ...]
    settings: Mapping[str, Any]
    rows: int


def workloads(description: Description) -> list[str]:
    """Return the workloads that have to be measured for the mix."""
    scans, expiring = [SEEK, STEP] if description.scans else [], [EXPIRE] if description.expiring else []
    return [READ, WRITE, *scans, *expiring]


def measure(
    description: Description, candidates: Sequence[Candidate], effort: Effort, say: Say = lambda what: None
) -> Measurements:
    """Measure the candidates.

    Raises:
        ConfigurationError: an option of a candidate or the directory makes no sense.
    """
    begun = perf_counter()
    rooms = []
    for one in candidates:
        say(f"memory and disk of {one.backend}")
        rooms.append(room(description, one, effort))
    say("a first short run, to see how many rows the time is enough for")
    rows = _rows_for(description, candidates, effort, begun)
    sizes = sizes_of(description, rows, effort.seed)
    urls = [one.measured(sizes.records / description.keys) for one in candidates]
    contest = _contest(description, [url for found in urls for url in found.values()], sizes, effort, effort.repeat)
    labels = {one.source: one.label for one in contest.taking_part()}
    figures = run(contest, lambda workload, contender: say(f"{workload}, {contender}"))
    results = parsed_document(document("engines", figures))
    backends = []
    for one, found, found_room in zip(candidates, urls, rooms, strict=True):
        timed = {name: times_of(description, results, labels[url], sizes.records) for name, url in found.items()}
        backends.append(as_measured(description, one, found_room, timed))
    return Measurements(tuple(backends), contest.settings(), sizes.records)


def room(description: Description, candidate: Candidate, effort: Effort) -> Room | str:
    """Return the room that rows take in a candidate, or the reason for which that could not be measured.

    There are enough rows that pages and arenas do not show, if so many are described.
    """
    rows = min(description.keys, _ROOM_ROWS, max(1, _MOST_BYTES // description.row_bytes))
    url = next(iter(candidate.measured(rows / description.keys).values()))
    return room_of(url, sizes_of(description, rows, effort.seed), effort.directory)


def as_measured(
    description: Description, candidate: Candidate, found_room: Room | str, timed: Mapping[str, Times | str]
) -> Measured:
    """Return the measurements of a candidate.

    Args:
        description: of the job.
        candidate: the backend.
        found_room: what its rows take, or why that is not known.
        timed: what its operations take with the cache that was ``given``, that which is ``wanted``, or both; or why
            that is not known.
    """
    plain = Measured(candidate.backend, candidate.persistent, candidate.checksums, candidate.cache is not None)
    failures = [found for found in (found_room, *timed.values()) if isinstance(found, str)]
    if failures:
        return replace(plain, failure=failures[0])
    times = {name: found for name, found in timed.items() if isinstance(found, Times)}
    known = found_room if isinstance(found_room, Room) else None
    each = {name: per_operation(description, replace(plain, times=found)) for name, found in times.items()}
    gain = faster(each.get("wanted"), each.get("given"))
    choices = tuple(candidate.choices(description, known, gain))
    cache = candidate.cache
    sized = cache is not None and any(one.option == cache.option for one in choices)
    notes: tuple[str, ...] = ()
    if cache is not None and gain is not None and not sized:
        notes = (
            f"{cache.option} stays at its default: half of a worker's memory was measured {gain:.2f} times as fast "
            "on this mix, which is within the noise or slower",
        )
    chosen = times["wanted"] if sized and "wanted" in times else next(iter(times.values()))
    return replace(plain, times=chosen, room=known, choices=choices, notes=notes)


def times_of(description: Description, results: Document, label: str, rows: int) -> Times | str:
    """Return the times of a contender's operations, or the reason for which they are not known."""
    for failure in results.failures:
        if failure.contender == label and failure.workload in workloads(description):
            return f"{failure.workload}: {failure.reason}"
    found: dict[str, Spread] = {}
    for workload in workloads(description):
        result = results.of(workload).get(label)
        if result is None:
            return f"there is no result of {label} with {workload}"
        per_second = result.throughput
        found[workload] = Spread(1e6 / per_second.median, 1e6 / per_second.high, 1e6 / per_second.low)
    return Times(rows, found[READ], found[WRITE], found.get(SEEK), found.get(STEP), found.get(EXPIRE))


def _contest(description: Description, urls: Sequence[str], sizes: Sizes, effort: Effort, repeat: int) -> Contest:
    return Backends(
        urls,
        [],
        workloads(description),
        sizes,
        repeat=repeat,
        durability=description.durability,
        directory=effort.directory,
    )


def sizes_of(description: Description, rows: int, seed: int) -> Sizes:
    """Return so many rows of the described sizes; keys are longer if there are too few of so many digits."""
    operations = max(_LEAST_OPERATIONS, rows // 2)
    return Sizes(
        records=rows,
        operations=operations,
        key_bytes=max(description.key_bytes, len(str(rows + 2 * operations))),
        value_bytes=description.value_bytes,
        batch=min(description.batch, operations),
        warm_up=operations // 10,
        seed=seed,
    )


def _rows_for(description: Description, candidates: Sequence[Candidate], effort: Effort, begun: float) -> int:
    """Return how many rows are left to be measured in the time since ``begun``, from how long a few of them take."""
    few = min(description.keys, _PROBE_ROWS)
    batch = min(description.batch, _PROBE_OPERATIONS)
    sizes = replace(sizes_of(description, few, effort.seed), operations=_PROBE_OPERATIONS, warm_up=0, batch=batch)
    urls = [url for one in candidates for url in one.measured(few / description.keys).values()]
    start = perf_counter()
    figures = run(_contest(description, urls, sizes, effort, 1))
    now = perf_counter()
    took = effort.repeat * (now - start)
    kinds = len(workloads(description))
    per_row = 0.0
    for result in figures["results"]:
        each = 1 / result["throughput"]["median"]
        loads = kinds * (each + _MADE_S) if result["workload"] == WRITE else 0.0
        per_row += effort.repeat * (each * _OPERATIONS_PER_ROW + loads)
    left = effort.seconds - (now - begun) - took
    most = min(description.keys, max(1, _MOST_BYTES // description.row_bytes))
    fitting = int(left / per_row) if per_row and left > 0 else 0
    return min(most, max(_LEAST_ROWS, fitting))
