"""Faults on demand: a backend whose n-th write fails.

Rule of this module: it damages nothing by itself and knows no engine. With a loop over n, a test shows that the code
under test survives a failure of each of its writes.
"""

from millpond.errors import BackendError
from millpond.stores.backend import Backend, Changes, Entries


class InjectedFault(BackendError):
    """The failure that a test has asked for."""


class FailingBackend(Backend):
    """``backend``, until its ``fail_at``-th write, which raises ``InjectedFault``; later ones work again.

    Args:
        backend: what is read and written.
        fail_at: counted from one; 0 never fails.
        applied: whether the failing write is applied all the same, as when an engine dies just before it can say so.
    """

    def __init__(self, backend: Backend, fail_at: int, *, applied: bool = False) -> None:
        self.max_key_size = backend.max_key_size
        self._backend = backend
        self._fail_at = fail_at
        self._applied = applied
        self.writes = 0

    def get(self, key: bytes) -> bytes | None:
        return self._backend.get(key)

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        return self._backend.scan(start, stop, reverse=reverse)

    def write(self, changes: Changes) -> None:
        self.writes += 1
        failing = self.writes == self._fail_at
        if not failing or self._applied:
            self._backend.write(changes)
        if failing:
            outcome = "applied" if self._applied else "not applied"
            raise InjectedFault(f"write {self.writes} fails because a test asked for it; it was {outcome}")

    def flush(self) -> None:
        self._backend.flush()

    def close(self) -> None:
        self._backend.close()
