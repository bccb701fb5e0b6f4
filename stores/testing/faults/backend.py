"""A backend, and a supplier of backends, that fail by a plan.

Rule of this module: it knows no engine. All that an engine can do beyond the contract goes through the functions of
``millpond.stores.backend.contract``, so the wrapper can do it, too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NoReturn, Self

from millpond.errors import InvalidArgumentError
from millpond.stores.backend.contract import Backend, BackendSupplier, Changes, Entries
from millpond.stores.testing.faults.plan import (
    Fault,
    FaultPlan,
    InjectedAbsence,
    InjectedBackendFault,
    InjectedDamage,
    Step,
)

_ENTRIES_PER_STEP = 4


class FaultyBackend(Backend):
    """``backend``, with steps that fail by ``plan``; afterwards it works again."""

    def __init__(self, backend: Backend, plan: FaultPlan) -> None:
        self.max_key_size = backend.max_key_size
        self._backend = backend
        self._plan = plan

    def get(self, key: bytes) -> bytes | None:
        self._meet(Step.BACKEND_GET)
        return self._backend.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._meet(Step.BACKEND_GET)
        return self._backend.get_many(keys)

    def last(self, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        self._meet(Step.BACKEND_GET)
        return self._backend.last(start, stop)

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        self._meet(Step.BACKEND_SCAN)
        return self._backend.scan(start, stop, reverse=reverse)

    def write(self, changes: Changes) -> None:
        applied = self._meet(Step.BACKEND_WRITE)
        self._backend.write(changes)
        self._plan.meet(Step.BACKEND_WRITTEN)
        if applied:
            self._fail_after(Step.BACKEND_WRITE)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        applied = self._meet(Step.BACKEND_WRITE)
        self._backend.delete_range(start, stop)
        if applied:
            self._fail_after(Step.BACKEND_WRITE)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        def interrupted() -> Iterator[tuple[bytes, bytes]]:
            source = iter(entries)
            while part := list(islice(source, _ENTRIES_PER_STEP)):
                yield from part
                self._meet(Step.BACKEND_LOAD)

        self._backend.load(interrupted())

    def flush(self) -> None:
        self._meet(Step.BACKEND_FLUSH)
        self._backend.flush()

    def close(self) -> None:
        applied = self._meet(Step.BACKEND_CLOSE)
        self._backend.close()
        if applied:
            self._fail_after(Step.BACKEND_CLOSE)

    def _meet(self, step: Step) -> bool:
        """Return whether to take the step, and whether to fail afterwards."""
        return _meet(self._plan, step)

    def _fail_after(self, step: Step) -> NoReturn:
        raise InjectedBackendFault(self._plan.failure(step, "applied"))


class FaultySupplier(BackendSupplier):
    """``supplier``, with backends that fail by ``plan``. Their directories are those of ``supplier``."""

    def __init__(self, supplier: BackendSupplier, plan: FaultPlan) -> None:
        vars(self).update(name=supplier.name, persistent=supplier.persistent, checksums=supplier.checksums)
        self._supplier = supplier
        self._plan = plan

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        raise InvalidArgumentError("a FaultySupplier is made of another supplier and a plan, not from a URL")

    def open(self, directory: Path) -> Backend:
        _meet(self._plan, Step.BACKEND_OPEN)
        return FaultyBackend(self._supplier.open(directory), self._plan)

    def destroy(self, directory: Path) -> None:
        self._supplier.destroy(directory)


def _meet(plan: FaultPlan, step: Step) -> bool:
    fault = plan.meet(step)
    if fault is Fault.DAMAGE:
        raise InjectedDamage(plan.failure(step))
    if fault is Fault.AWAY:
        raise InjectedAbsence(plan.failure(step))
    if fault is Fault.ERROR:
        raise InjectedBackendFault(plan.failure(step))
    return fault is Fault.APPLIED
