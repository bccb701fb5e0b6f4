"""What checksums cost: operations of a store with and without them, in turn, by the processor time that they take."""

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Final

from millpond.bench.measure import without_gc
from millpond.bench.stores import BATCH, Subject, key_of
from millpond.stores.specs import StoreKind

_KINDS: Final = (StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.VERSIONED)


@dataclass(frozen=True)
class Cost:
    """Microseconds of processor time of one operation, the median of the rounds."""

    backend: str
    kind: str
    operation: str
    keys: int
    without_us: float
    with_us: float


def run(backends: Sequence[str], keys: int, *, rounds: int = 7, directory: Path | None = None) -> list[dict[str, Any]]:
    """Measure operations on each backend with ``keys`` keys and values of 100 bytes.

    Args:
        backends: names or URLs of registered backends.
        keys: how many keys each store holds.
        rounds: how often each operation is measured; the median counts.
        directory: where the files go; by default the temporary directory.
    """
    costs: list[Cost] = []
    for backend in backends:
        for kind in _KINDS:
            with _subjects(backend, kind, keys, directory) as subjects:
                costs.extend(_costs(subjects, rounds))
    return list(map(asdict, costs))


@contextmanager
def _subjects(backend: str, kind: StoreKind, keys: int, directory: Path | None) -> Iterator[list[Subject]]:
    """The store without checksums and with them."""
    with tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=directory) as temporary, ExitStack() as stack:
        subjects = []
        for checksums in (False, True):
            subject = Subject(backend, kind, keys, Path(temporary, str(checksums)), checksums=checksums)
            stack.callback(subject.close)
            subjects.append(subject)
        yield subjects


def _costs(subjects: Sequence[Subject], rounds: int) -> Iterator[Cost]:
    picker = random.Random(1)
    keys = [key_of(picker.randrange(subjects[0].keys)) for _ in range(BATCH)]
    for bare, checked in zip(*(subject.operations() for subject in subjects), strict=True):
        times: list[tuple[float, float]] = []
        with without_gc():
            for _ in range(rounds + 1):
                times.append((_micros(bare.work, keys), _micros(checked.work, keys)))
        without, checksummed = map(median, zip(*times[1:], strict=True))
        subject = subjects[0]
        yield Cost(subject.backend_name, subject.kind.value, bare.name, subject.keys, without, checksummed)


def _micros(work: Callable[[list[Any]], object], keys: list[Any]) -> float:
    start = process_time()
    work(keys)
    return (process_time() - start) * 1e6 / len(keys)
