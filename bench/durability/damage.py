"""The outcome of every single-bit flip in the files of a small state, durable and local.

Rule of this module: a flip is *harmless* if the content is right and nothing had to be done, *healed* if it is right
because a local copy was restored, *refused* if Millpond raised an error on purpose, and *silent* if the content is
wrong. A process that dies of a flip ends the run.

Opening a task for each of a million flips takes hours, so each flip first meets only the check that stands in its way:
a seal, a durable file's checksums, an engine's own. What that check does not notice, and every thousandth flip in any
case, goes the whole way: the task is opened, read, written and restored elsewhere.
"""

import logging
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from millpond.errors import BackendError, CorruptFileError, MillpondError
from millpond.stores.backend.registry import supplier
from millpond.stores.durability.copies.clean_shutdown import CleanShutdownMarker
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.durability.parquet.reading import read_all_tables
from millpond.stores.durability.state import TaskState
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

OUTCOMES: Final = ("harmless", "healed", "refused", "silent")

_SPECS: Final = (
    StoreSpec("counts", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64),
    StoreSpec("rates", StoreKind.VERSIONED, STRING, INT64, history_retention=1000),
)
_FLIPS_PER_JOB: Final = 200, 4000
"""The fewest and the most: a job begins with a second of work of its own, and the last ones are waited for."""
_WHOLE_WAY: Final = 1009
"""The flips of which one goes the whole way; odd, so that each bit of a byte has its turn."""
_ALONE: Final = DurabilityPolicy(max_deltas=1)
"""Each commit but the first of two is a snapshot."""


# Finding a backend among all that is installed takes longer than most flips.
_supplier = cache(supplier)


@dataclass(frozen=True)
class _State:
    """A small state: three commits and a local copy of the last on one backend."""

    backend: str
    directory: Path
    manifests: tuple[Manifest, ...]

    def task(self, backend: str, policy: DurabilityPolicy | None = None) -> TaskState:
        return TaskState(
            _SPECS,
            _supplier(backend),
            application_id="app",
            task_id="0_0",
            local_dir=self.directory / "local",
            storage=self.storage,
            policy=policy,
        )

    @property
    def storage(self) -> Storage:
        return Storage.from_uri(f"file://{self.directory}/state?sync=false")

    @property
    def copies(self) -> list[Path]:
        """The directories of the local copies."""
        return sorted(path for path in (self.directory / "local/app/0_0" / self.backend).iterdir() if path.is_dir())

    def moved(self, directory: Path) -> "_State":
        """Return a copy of the state in a directory of its own."""
        shutil.copytree(self.directory, directory, dirs_exist_ok=True)
        return _State(self.backend, directory, self.manifests)


def _made(backend: str, directory: Path) -> _State:
    empty = _State(backend, directory, ())
    manifests: list[Manifest] = []
    with empty.task("memory") as state:
        for number in range(3):
            stores: Any = state.open(manifests[-1] if manifests else None)
            for key in range(12):
                stores["counts"].put(f"key {key + number}", number, 10 * number)
                stores["rates"].put(f"key {key}", number, 10 * number)
            manifests.append(state.commit())
    with empty.task(backend) as state:
        state.open(manifests[-1])
    return _State(backend, directory, tuple(manifests))


def _content(state: TaskState, manifest: Manifest) -> dict[str, Any]:
    stores: Any = state.open(manifest)
    return {name: list(store.scan()) for name, store in stores.items()}


def _restored(state: _State) -> list[Any]:
    """Return what a new worker sees, what one whose copy is behind sees, and what the next snapshot holds."""
    last = state.manifests[-1]
    with state.task("memory") as fresh:
        seen = [_content(fresh, last)]
    with state.task("memory", _ALONE) as fresh:
        stores: Any = fresh.open(last)
        stores["counts"].put("key 0", 7, 70)
        seen.append(_content(fresh, fresh.commit()))
    return seen


def _replayed(state: _State, flip: Callable[[], object]) -> list[Any]:
    with state.task("memory") as behind:
        behind.open(state.manifests[0])
        behind.rollback()
        flip()
        return [_content(behind, state.manifests[-1])]


def _copied(state: _State) -> list[Any]:
    """Return what the worker with the local copy sees, and what its next snapshot holds."""
    with state.task(state.backend, _ALONE) as current:
        seen = [_content(current, state.manifests[-1])]
        stores: Any = current.open(state.manifests[-1])
        stores["counts"].put("key 0", 7, 70)
        after = current.commit()
    with state.task("memory") as fresh:
        return [*seen, _content(fresh, after)]


class _Restores(logging.Handler):
    """Notes if a local copy was restored, or stood in for a durable file."""

    seen = False

    def emit(self, record: logging.LogRecord) -> None:
        self.seen = True


def _flip(path: Path, bit: int) -> None:
    """Flip a bit of a file in its place; twice, and it is as it was."""
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def _outcomes(state: _State, name: str, role: str, bits: range) -> Counter[str]:
    """Count the outcomes of the flips of these bits of one file."""
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=state.directory.parent) as scratch, _restores() as restores:
        home = Path(scratch)
        expected = _seen(state.moved(home / "expected"), role, lambda: None)
        probed = state.moved(home / "probed")
        copy = next((path for path in probed.copies if path in (probed.directory / name).parents), None)
        rows = [] if copy is None else _engine_rows(state.backend, copy, home)
        for bit in bits:
            _flip(probed.directory / name, bit)
            noticed = _noticed(probed, name, role, copy, home, rows)
            _flip(probed.directory / name, bit)
            if noticed is None or bit % _WHOLE_WAY == 0:
                damaged = state.moved(home / "damaged")
                noticed = _the_whole_way(damaged, role, partial(_flip, damaged.directory / name, bit), expected)
                noticed = "healed" if noticed == "harmless" and restores.seen else noticed
                restores.seen = False
                shutil.rmtree(damaged.directory)
            found[noticed] += 1
    return found


def _the_whole_way(damaged: _State, role: str, flip: Callable[[], object], expected: list[Any]) -> str:
    try:
        return "harmless" if _seen(damaged, role, flip) == expected else "silent"
    except MillpondError:
        return "refused"


def _noticed(probed: _State, name: str, role: str, copy: Path | None, scratch: Path, rows: list[Any]) -> str | None:
    """Return the outcome of a flip, if the check that stands in its way notices it."""
    last = probed.manifests[-1]
    if role != "local":
        (file,) = (file for file in last.files if name.endswith(last.path(file)))
        try:
            for _ in read_all_tables(probed.storage, last, file):
                pass
        except CorruptFileError:
            return "refused"
        return None
    checked = _supplier(probed.backend).checksums
    if any(CleanShutdownMarker(path, checked_by_engine=checked, limit=1 << 30).fault() for path in probed.copies):
        return "healed"
    if copy is None or not checked:
        return None
    try:
        return "harmless" if _engine_rows(probed.backend, copy, scratch) == rows else None
    except BackendError:
        return "healed"


def _engine_rows(backend: str, copy: Path, scratch: Path) -> list[Any]:
    """Return the rows that the engine reads; it opens a duplicate, because it may change what it opens."""
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        shutil.copytree(copy, place, dirs_exist_ok=True)
        with _supplier(backend).open(Path(place)) as engine:
            return list(engine.scan())


@contextmanager
def _restores() -> Iterator["_Restores"]:
    """Note restores of local copies, and copies that stand in, by the warnings that they log."""
    restores, log = _Restores(logging.WARNING), logging.getLogger("millpond.stores.durability")
    log.addHandler(restores)
    log.propagate = False
    try:
        yield restores
    finally:
        log.removeHandler(restores)


def _seen(state: _State, role: str, flip: Callable[[], object]) -> list[Any]:
    if role == "delta, replayed":
        return _replayed(state, flip)
    flip()
    return _copied(state) if role == "local" else _restored(state)


def _files(state: _State) -> Iterator[tuple[str, str]]:
    """Yield the files and their roles."""
    for path in sorted(state.directory.rglob("*")):
        name = str(path.relative_to(state.directory))
        if not path.is_file() or path.name == "lease" or path.stat().st_size == 0:
            continue
        if name.startswith("state/"):
            yield name, "durable"
            if ".delta." in name:
                yield name, "delta, replayed"
        else:
            yield name, "local"


def run(backends: list[str], flips: int, *, directory: Path | None = None) -> Mapping[str, Any]:
    """Flip bits of each file, one at a time, on each backend.

    Args:
        backends: whose local files are damaged; durable files are the same for all, and damaged once.
        flips: at most so many in each file, evenly spread; 0 for all bits.
        directory: where the files go.
    """
    results: list[dict[str, Any]] = []
    started = time.monotonic()
    for backend in backends:
        with tempfile.TemporaryDirectory(dir=directory) as home, _pool() as pool:
            state = _made(backend, Path(home))
            files = [(name, role) for name, role in _files(state) if role == "local" or backend == backends[0]]
            flipped = {file: _flipped(state.directory / file[0], flips) for file in files}
            jobs = {
                (name, role): [pool.submit(_outcomes, state, name, role, part) for part in _parts(bits)]
                for (name, role), bits in flipped.items()
            }
            for (name, role), bits in flipped.items():
                size = (state.directory / name).stat().st_size * 8
                counts = sum((job.result() for job in jobs[name, role]), Counter[str]())
                kind = backend if role == "local" else role
                results.append({"kind": kind, "file": _kind_of(name), "bits": size, "flips": len(bits), **counts})
    return {"seconds": round(time.monotonic() - started, 1), "files": results}


def _flipped(path: Path, flips: int) -> range:
    """Return which bits of a file are flipped."""
    size = path.stat().st_size * 8
    return range(0, size, max(1, size // (flips or size)))


def _parts(bits: range) -> Iterator[range]:
    """Return the bits of each job, so that all processes have work to the end."""
    fewest, most = _FLIPS_PER_JOB
    step = min(most, max(fewest, len(bits) // (4 * (cpu_count() or 1))))
    return (bits[start : start + step] for start in range(0, len(bits), step))


def _pool() -> ProcessPoolExecutor:
    # Threads of engines and of Arrow do not survive a fork.
    return ProcessPoolExecutor(cpu_count(), mp_context=get_context("spawn"))


def _kind_of(name: str) -> str:
    """Return the file's name without what is different each time."""
    last = name.rpartition("/")[2]
    return last.partition(".")[2] if last[:12].isdecimal() and "-" in last else last


def print_results(console: Console, figures: Mapping[str, Any]) -> None:
    """Print a row for each file, and the sums."""
    table = Table("where", "file", "bits", "flips", *OUTCOMES, title=f"Single-bit flips, in {figures['seconds']} s")
    total: Counter[str] = Counter()
    for row in figures["files"]:
        table.add_row(row["kind"], row["file"], *(f"{row.get(name, 0):,}" for name in ("bits", "flips", *OUTCOMES)))
        total.update({name: row.get(name, 0) for name in ("bits", "flips", *OUTCOMES)})
    table.add_row("", "all", *(f"{total[name]:,}" for name in ("bits", "flips", *OUTCOMES)), end_section=True)
    console.print(table)
