"""The workloads by their names in db_bench and YCSB: their steps, planned before any engine is open.

Rule of this module: a plan follows from the sizes and the number of the run alone, so that all contenders do the same
steps on the same rows. It knows no engine and no clock.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np

from millpond.bench.engines.distributions import Numbers, Zipfian, scattered, uniform
from millpond.bench.runs.asked import check_least
from millpond.errors import ConfigurationError

_WORD: Final = 64
_LONGEST_SCAN: Final = 100
"""The most rows of a scan in YCSB's workload E."""


class Kind(StrEnum):
    """The kind of a step. Its argument is given in brackets."""

    READ = "read"
    """Reads a row [its key]."""

    INSERT = "insert"
    """Writes rows that are not there, in one write [their keys]."""

    UPDATE = "update"
    """Writes rows, which may be there, in one write [their keys]."""

    READ_MODIFY_WRITE = "read_modify_write"
    """Reads a row, then writes it [its key]."""

    DELETE = "delete"
    """Deletes rows, which may be there, in one write [their keys]."""

    SCAN = "scan"
    """Reads rows from a key on [the key, and how many rows at most]."""

    NEXT = "next"
    """Reads the next row in key order [nothing]."""

    PREVIOUS = "previous"
    """Reads the next row in the opposite order [nothing]."""


WRITES: Final = {Kind.INSERT, Kind.UPDATE, Kind.READ_MODIFY_WRITE, Kind.DELETE}
ORDERED: Final = {Kind.SCAN, Kind.NEXT, Kind.PREVIOUS}
"""The kinds that need an engine whose keys are in order."""

Step: TypeAlias = tuple[Kind, Any]


@dataclass(frozen=True)
class Sizes:
    """The sizes of a store and of the work on it.

    Args:
        records: rows of the store before the operations; a fill writes so many.
        operations: rows read, written or deleted, or scans, that are measured; a fill has as many as there are records.
        key_bytes: of each key.
        value_bytes: of each value.
        batch: rows of a write, in the workloads that are named by db_bench.
        warm_up: operations before those that are measured; a fill has none.
        seed: of all chance.

    Raises:
        ConfigurationError: a number makes no sense, or there are not enough keys of that many bytes.
    """

    records: int
    operations: int
    key_bytes: int = 16
    value_bytes: int = 100
    batch: int = 1
    warm_up: int = 0
    seed: int = 1

    def __post_init__(self) -> None:
        check_least(self, records=1, operations=1, key_bytes=1, value_bytes=0, batch=1, warm_up=0, seed=0)
        if self.total > 10**self.key_bytes:
            raise ConfigurationError(
                f"there are not {self.total:,} keys of {self.key_bytes} digits; give a longer key or fewer records"
            )

    @property
    def total(self) -> int:
        """More numbers of rows than any workload needs."""
        return self.records + self.warm_up + self.operations

    @property
    def data_bytes(self) -> int:
        """Bytes of all keys and values."""
        return self.records * (self.key_bytes + self.value_bytes)


@dataclass(frozen=True)
class Plan:
    """The work of one run of a workload.

    Args:
        loaded: the keys that the store has before, in the order in which they are put.
        warm_up: steps that are not measured.
        steps: those that are.
    """

    loaded: Sequence[bytes]
    warm_up: Sequence[Step]
    steps: Sequence[Step]


def rows_of(step: Step) -> int:
    """Return how many operations a step counts for: rows of a write, one for everything else."""
    kind, argument = step
    return len(argument) if kind in (Kind.INSERT, Kind.UPDATE, Kind.DELETE) else 1


def in_order(sizes: Sizes, numbers: Numbers) -> list[bytes]:
    """Return keys that sort as their numbers do, as db_bench's: decimal digits."""
    return [b"%0*d" % (sizes.key_bytes, number) for number in numbers.tolist()]


def hashed(sizes: Sizes, numbers: Numbers) -> list[bytes]:
    """Return keys that lie scattered, as YCSB's: hexadecimal digits of a hash that gives each number its own key."""
    bits = min(_WORD, 4 * sizes.key_bytes)
    return [b"%0*x" % (sizes.key_bytes, number) for number in scattered(numbers, bits).tolist()]


def _fill(chance: np.random.Generator, sizes: Sizes, *, kind: Kind, random: bool) -> Plan:
    numbers = chance.integers(0, sizes.records, sizes.records) if random else np.arange(sizes.records)
    return Plan([], [], _batches(kind, in_order(sizes, numbers), sizes.batch))


def _random(chance: np.random.Generator, sizes: Sizes, *, kind: Kind) -> Plan:
    """Plan uniform rows of a store that was filled in random order."""
    return _halves(sizes, _loaded(chance, sizes), kind, uniform(chance, np.full(_both(sizes), sizes.records)))


def _halves(sizes: Sizes, loaded: Sequence[bytes], kind: Kind, numbers: Numbers) -> Plan:
    keys = in_order(sizes, numbers)
    parts = keys[: sizes.warm_up], keys[sizes.warm_up :]
    if kind in (Kind.UPDATE, Kind.DELETE):
        return Plan(loaded, *(_batches(kind, part, sizes.batch) for part in parts))
    if kind is Kind.SCAN:
        return Plan(loaded, *([(kind, (key, 1)) for key in part] for part in parts))
    return Plan(loaded, *([(kind, key) for key in part] for part in parts))


def _walk(chance: np.random.Generator, sizes: Sizes, *, kind: Kind) -> Plan:
    steps = [(kind, None)] * min(sizes.records, sizes.operations)
    return Plan(_loaded(chance, sizes), steps[: sizes.warm_up], steps)


def _turnover(_: np.random.Generator, sizes: Sizes) -> Plan:
    """Plan, batch by batch, new rows behind all that are there, and as many deletes of the first ones."""
    warm_up, steps = (
        _turned(sizes, first, end)
        for first, end in ((0, sizes.warm_up // 2), (sizes.warm_up // 2, sizes.warm_up // 2 + _pairs(sizes)))
    )
    return Plan(in_order(sizes, np.arange(sizes.records)), warm_up, steps)


def _turned(sizes: Sizes, first: int, end: int) -> list[Step]:
    numbers = np.arange(first, end)
    new = _batches(Kind.INSERT, in_order(sizes, sizes.records + numbers), sizes.batch)
    old = _batches(Kind.DELETE, in_order(sizes, numbers), sizes.batch)
    return list(chain.from_iterable(zip(new, old, strict=True)))


def _pairs(sizes: Sizes) -> int:
    return max(1, sizes.operations // 2)


def _mix(chance: np.random.Generator, sizes: Sizes, *, parts: dict[Kind, float], latest: bool = False) -> Plan:
    """Plan as YCSB does: kinds by chance, on rows that are Zipfian among those that are there, or latest."""
    names = list(parts)
    drawn = chance.choice(len(names), _both(sizes), p=list(parts.values()))
    inserted = drawn == (names.index(Kind.INSERT) if Kind.INSERT in parts else -1)
    there = sizes.records + np.cumsum(inserted) - inserted
    zipfian = Zipfian(sizes.total)
    numbers = (zipfian.latest if latest else zipfian.draw)(chance, there)
    keys = hashed(sizes, np.where(inserted, there, numbers))
    lengths = chance.integers(1, _LONGEST_SCAN + 1, _both(sizes)).tolist()
    steps = [_single(names[kind], key, most) for kind, key, most in zip(drawn.tolist(), keys, lengths, strict=True)]
    loaded = hashed(sizes, np.arange(sizes.records))
    return Plan(loaded, steps[: sizes.warm_up], steps[sizes.warm_up :])


def _single(kind: Kind, key: bytes, most: int) -> Step:
    if kind is Kind.SCAN:
        return kind, (key, most)
    return kind, [key] if kind in (Kind.INSERT, Kind.UPDATE) else key


def _both(sizes: Sizes) -> int:
    return sizes.warm_up + sizes.operations


def _loaded(chance: np.random.Generator, sizes: Sizes) -> list[bytes]:
    return in_order(sizes, chance.permutation(sizes.records))


def _batches(kind: Kind, keys: list[bytes], batch: int) -> list[Step]:
    return [(kind, keys[start : start + batch]) for start in range(0, len(keys), batch)]


@dataclass(frozen=True)
class Workload:
    """One workload: a sentence on it, its kinds of steps, and the maker of its plan."""

    name: str
    meaning: str
    kinds: frozenset[Kind]
    make: Callable[[np.random.Generator, Sizes], Plan] = field(repr=False)

    def plan(self, sizes: Sizes, run: int) -> Plan:
        """Return the steps of one run; the same for the same sizes and number of the run."""
        return self.make(np.random.default_rng([sizes.seed, run, list(WORKLOADS).index(self.name)]), sizes)

    def operations(self, sizes: Sizes) -> int:
        """Return how many operations are measured."""
        if self.name in ("fillseq", "fillrandom"):
            return sizes.records
        if self.name == "turnover":
            return 2 * _pairs(sizes)
        return min(sizes.records, sizes.operations) if self.kinds & {Kind.NEXT, Kind.PREVIOUS} else sizes.operations


def _workloads() -> list[Workload]:
    def one(name: str, meaning: str, kind: Kind, make: Callable[..., Plan], **how: Any) -> Workload:
        return Workload(name, meaning, frozenset({kind}), partial(make, kind=kind, **how))

    def mix(letter: str, meaning: str, parts: dict[Kind, float], **how: Any) -> Workload:
        return Workload(f"ycsb-{letter}", meaning, frozenset(parts), partial(_mix, parts=parts, **how))

    read, update, insert = Kind.READ, Kind.UPDATE, Kind.INSERT
    return [
        one("fillseq", "puts new rows in key order", insert, _fill, random=False),
        one("fillrandom", "puts rows by chance into an empty store, some twice", update, _fill, random=True),
        one("overwrite", "puts rows by chance that are there", update, _random),
        one("readrandom", "reads rows by chance", read, _random),
        one("readseq", "reads row after row in key order", Kind.NEXT, _walk),
        one("readreverse", "reads row after row in the opposite order", Kind.PREVIOUS, _walk),
        one("seekrandom", "finds a key by chance and reads the row there", Kind.SCAN, _random),
        one("deleterandom", "deletes rows by chance, some twice", Kind.DELETE, _random),
        Workload(
            "turnover",
            "puts new rows behind all others, and deletes as many of the first",
            frozenset({Kind.INSERT, Kind.DELETE}),
            _turnover,
        ),
        mix("a", "half reads, half updates, Zipfian", {read: 0.5, update: 0.5}),
        mix("b", "95% reads, 5% updates, Zipfian", {read: 0.95, update: 0.05}),
        mix("c", "reads, Zipfian", {read: 1.0}),
        mix("d", "95% reads of the latest rows, 5% inserts", {read: 0.95, insert: 0.05}, latest=True),
        mix("e", "95% scans of 1 to 100 rows, Zipfian, 5% inserts", {Kind.SCAN: 0.95, insert: 0.05}),
        mix("f", "half reads, half reads with an update, Zipfian", {read: 0.5, Kind.READ_MODIFY_WRITE: 0.5}),
    ]


WORKLOADS: Final[dict[str, Workload]] = {workload.name: workload for workload in _workloads()}
"""All workloads by name, those of db_bench first."""
