"""One run of one contender on one pattern: ``python -m millpond.bench.stores.worker``.

Rule of this module: it is a program, which ``millpond.bench.runs.process`` starts.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.bench.engines.contenders import ContenderKind, opener
from millpond.bench.engines.engine import RawEngine, Use
from millpond.bench.measure import bytes_below
from millpond.bench.runs.job import RunJob
from millpond.bench.runs.process import answer
from millpond.bench.stores.driving import on_engine, on_store
from millpond.bench.stores.patterns import PATTERNS
from millpond.bench.stores.place import Place
from millpond.bench.stores.sizes import Sizes


@dataclass(frozen=True)
class Job(RunJob):
    """The run to make.

    Attributes:
        kind: a backend, or the engine under it.
        source: the backend's name or URL.
        checksums: whether rows have checksums.
        workload: the name of the pattern.
        sizes: how much is done.
        cache_bytes: of the engine's cache, if it can be set; None leaves it as it comes.
    """

    kind: ContenderKind
    source: str
    checksums: bool
    workload: str
    sizes: Sizes
    cache_bytes: int | None


def measure(job: Job) -> dict[str, Any]:
    """Fill the store, warm it up, do what the pattern does, and see that it is right; the figures of this run."""
    directory, pattern = Path(job.directory), PATTERNS[job.workload]
    directory.mkdir()
    engine, use = opener(job.kind, job.source, Use(None, job.cache_bytes))
    assert use.supplier is not None, "backends, and engines under them, have a supplier"
    if job.kind == "backend":
        place = Place(use.supplier, directory, job.checksums)
        return {**on_store(pattern, place, job.sizes), "disk_bytes": bytes_below(place.local)}
    raw = engine(directory / "engine", use)
    assert isinstance(raw, RawEngine), "an engine under a backend"
    try:
        figures = on_engine(pattern, raw, job.sizes, directory)
    finally:
        raw.close()
    return {**figures, "disk_bytes": bytes_below(raw.directory)}


if __name__ == "__main__":
    answer(Job.of, measure)
