"""The steps of a stream on a store, made before any store is open, and the same for the engine alone.

Rule of this module: a plan follows from the sizes alone, so that all contenders do the same steps. A pattern knows no
clock. It says itself what the store must hold in the end, by a model that shares no code with the store.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeAlias

from millpond.bench.engines.engine import RawEngine
from millpond.bench.runs.recording import Values, Work
from millpond.bench.stores.sizes import Sizes
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import BYTES, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

CHECKED: Final = 1_000
"""The approximate number of keys that are read back in the end."""


class Kind(StrEnum):
    """The kind of a step. Its argument is given in brackets."""

    PUT = "put"
    """Puts a row [its key, and its time]."""

    GET = "get"
    """Reads a row [its key, and as of which time, None for the latest]."""

    UPSERT = "upsert"
    """Reads a row, then puts it [its key, and its time]."""

    PUT_MANY = "put_many"
    """Puts rows as columns [their keys, and their times]."""

    GET_MANY = "get_many"
    """Reads rows as columns [their keys, and as of which times]."""

    SCAN = "scan"
    """Reads rows in order [the first key]."""

    COUNT = "count"
    """Adds a record to its window [the record's key and time]."""

    MERGE = "merge"
    """Adds a record to its session, or makes one of several [the record's key and time]."""

    JOIN = "join"
    """Keeps a record, and finds those around it [the record's key and time]."""

    COMMIT = "commit"
    """Writes what was put since the last one [nothing]."""


Step: TypeAlias = tuple[Kind, Any]
Batch: TypeAlias = Sequence[Step]

ENDED: Final[Step] = (Kind.COMMIT, None)
"""The last step of a batch that writes."""


@dataclass(frozen=True)
class Plan:
    """The work of one run, in batches that each end with a commit, if they write.

    Args:
        filled: batches that fill the store.
        warm_up: those that are not measured.
        batches: those that are.
    """

    filled: Sequence[Batch]
    warm_up: Sequence[Batch]
    batches: Sequence[Batch]

    def steps(self) -> Iterable[Step]:
        """Return all steps, from the first that fills."""
        return (step for part in (self.filled, self.warm_up, self.batches) for batch in part for step in batch)


def rows_of(step: Step) -> int:
    """Return how many operations a step counts for: rows of columns, none for a commit, one for everything else."""
    kind, argument = step
    if kind is Kind.COMMIT:
        return 0
    return len(argument[0]) if kind in (Kind.PUT_MANY, Kind.GET_MANY) else 1


@dataclass(frozen=True)
class Opened:
    """A store that is open, and its transaction."""

    store: Any
    transaction: Transaction

    def commit(self, _: object = None) -> None:
        """Write what was put."""
        self.store.flush()
        self.transaction.commit()


class EngineSide:
    """An engine as a store uses it: rows are collected, and written at the commit.

    Attributes:
        get: reads the row of a key as of the last commit.
        pending: what is to be written by the next one; None deletes.
    """

    def __init__(self, engine: RawEngine) -> None:
        self.engine = engine
        self.get: Callable[[bytes], Any] = engine.getter()
        self.pending: dict[bytes, bytes | None] = {}

    def commit(self, _: object = None) -> None:
        """Write and delete what is pending, each in one transaction or batch."""
        deleted = [key for key, value in self.pending.items() if value is None]
        rows = [(key, value) for key, value in self.pending.items() if value is not None]
        self.pending.clear()
        if deleted:
            self.engine.delete_each(deleted)
        if rows:
            self.engine.put_each(rows)
        self.get = self.engine.getter()


class Pattern(ABC):
    """The work of one stream on one store."""

    name: ClassVar[str]
    """The name of the pattern."""

    operation: ClassVar[str]
    """The operation that is counted."""

    engine_does: ClassVar[str]
    """The engine's work for an operation, row by row as keys and values come."""

    kind: ClassVar[StoreKind]
    limits: ClassVar[Mapping[str, Any]] = {}
    """The arguments that a spec of the kind needs, and may have."""

    @property
    def spec(self) -> StoreSpec:
        """The store, without checksums."""
        return StoreSpec("bench", self.kind, STRING, BYTES, checksums=False, **self.limits)

    @abstractmethod
    def plan(self, sizes: Sizes) -> Plan:
        """Return the steps; the same for the same sizes."""

    @abstractmethod
    def work(self, store: Any, values: Values) -> dict[Kind, Work]:
        """Return how a store does each kind of step but the commit."""

    @abstractmethod
    def engine_work(self, side: EngineSide, values: Values) -> dict[Kind, Work]:
        """Return how the engine alone does each kind of step but the commit, with ``side.get`` as of the last one."""

    @abstractmethod
    def check(self, opened: Opened, plan: Plan) -> None:
        """Check that the store holds what it must after all steps, committed.

        Raises:
            LookupError: it does not.
        """


def in_batches(steps: Sequence[Step], sizes: Sizes, *, writes: bool) -> tuple[list[Batch], list[Batch]]:
    """Return single steps, one for each operation, as batches: those that warm up, and those that are measured."""
    end = [ENDED] if writes else []
    cut: list[Batch] = [[*steps[start : start + sizes.batch], *end] for start in range(0, len(steps), sizes.batch)]
    first = sizes.warming // sizes.batch
    return cut[:first], cut[first:]


def require(found: object, expected: object, what: str) -> None:
    """Refuse a store that holds something else than the model.

    Raises:
        LookupError: ``found`` is not ``expected``.
    """
    if found != expected:
        raise LookupError(f"{what} is {found!r} in the store, and must be {expected!r}")


def sampled(keys: Iterable[Any]) -> list[Any]:
    """Return about ``CHECKED`` of the keys, spread over all."""
    everything = list(keys)
    return everything[:: max(1, len(everything) // CHECKED)]
