"""The backend contract: one ordered map of bytes to bytes, the least that a third party must write.

Each sentence of these docstrings is a promise that ``millpond.stores.testing`` tests, in the words that stand here.

Rule of this module: it knows nothing of users' keys, values, timestamps or formats. An engine has the five
abstract methods of ``Backend``. The others (``OVERRIDABLE``) are made of those five for engines that have no faster
way, so that no caller ever asks which engine it has.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Protocol, Self, TypeAlias, runtime_checkable

CONTRACT: Final = 1
"""The version of this contract. A change that a backend has to follow makes it the next."""

Changes: TypeAlias = Mapping[bytes, bytes | None]
"""The changes of a write: the new value of each key, ``None`` to delete it."""

Entries: TypeAlias = Iterator[tuple[bytes, bytes]]
"""Keys and values in key order."""


_LOADED: Final = 50_000
"""The number of entries in each write of a load, for a backend without a faster way."""

OVERRIDABLE: Final = ("get_many", "last", "delete_range", "load", "entry_count", "memory_use")
"""The methods of ``Backend`` that an engine overrides where it has a faster way."""


class Backend(ABC):
    """One ordered map of bytes to bytes.

    A key is any bytes, and keys that differ in a single one are two keys. Keys compare as unsigned bytes, shorter first
    where one is the prefix of the other. Keys are never empty. Values may be empty. Values of any length and
    writes of any number of changes are kept whole. What is read is ``bytes``.

    A backend is used by one thread at a time. That thread need not be the one that opened it, or that made a scan which
    is still open.

    Its public methods are those of this class. Five are an engine's own; the others are made of them, and an engine
    that has a faster way overrides them.

    Every method but ``close`` and ``memory_use`` raises ``StoreClosedError`` once the backend is closed.
    An engine's own exception never leaves its backend: it becomes a ``StoreError``, a full disk a ``StoreFullError``.
    An engine that cannot be reached now raises ``BackendUnavailableError``, and has lost nothing when it is back.
    """

    max_key_size: int | None = None
    """The longest key in bytes that the engine takes, or None where there is no such limit.

    A backend with a limit is wrapped by ``millpond.stores.backend.long_keys``; its author need not do anything about
    long keys.
    """

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None where there is none."""

    @abstractmethod
    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        """Return the entries with ``start <= key < stop``, in key order.

        ``None`` leaves that side open. ``reverse`` gives the same entries in the opposite order. A range whose start is
        not below its stop is empty. The iterator shows the content as it was when ``scan`` was called, whatever is
        written while it is open. Several may be open at once. It has a ``close`` method, which frees what it holds;
        exhausting or dropping it does the same.
        """

    @abstractmethod
    def write(self, changes: Changes) -> None:
        """Apply all of ``changes`` or none of them, even if the process is killed in the middle.

        Deleting a key that does not exist is no error. When ``write`` returns, ``get`` and ``scan`` show the changes.
        The mapping stays the caller's, who may change it afterwards. After a write that raises, ``get`` and ``scan``
        show whether it was applied, and what they show is kept as if it had not raised.
        If the process was killed, a reopened backend shows the result of a prefix of the writes. A loss of power
        may lose or damage anything while there are writes that were not flushed.
        """

    @abstractmethod
    def flush(self) -> None:
        """Make everything that was written survive a kill of the process, and a loss of power before the next write.

        A backend in memory does nothing here.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the engine and its files. Closing twice is no error. Open scans end with ``StoreClosedError``.

        What was written is there when the directory is opened again, flushed or not.
        """

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, in the order of ``keys``; None where there is none. Keys may repeat."""
        return list(map(self.get, keys))

    def last(self, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        """Return the entry with the greatest key in ``start <= key < stop``, or None where the range has none."""
        return next(self.scan(start, stop, reverse=True), None)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete the entries with ``start <= key < stop``, atomically."""
        self.write({key: None for key, _ in self.scan(start, stop)})

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Load entries that come in strictly ascending key order into a backend that is empty.

        Need not be atomic: after a failure the caller throws the backend's directory away.
        """
        rest = iter(entries)
        while changes := dict(islice(rest, _LOADED)):
            self.write(changes)

    def entry_count(self) -> int:
        """Return the number of entries, which may be an estimate."""
        return sum(1 for _ in self.scan())

    def memory_use(self) -> int:
        """Return about how many bytes of memory this process has back when the backend is closed.

        Only rows that lie nowhere but in this process's memory count. It is asked after each micro-batch, so it should
        not need a scan to answer.
        """
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def overrides(kind: type[Backend], method: str) -> bool:
    """Return whether a kind of backend has its own way for one of the ``OVERRIDABLE`` methods."""
    return getattr(kind, method) is not getattr(Backend, method)


class BackendSupplier(ABC):
    """A picklable description of a backend: which engine, with which options. It travels to the workers that open it.

    Registered under the entry-point group ``millpond.backends``; see ``millpond.stores.backend.registry``.
    """

    name: ClassVar[str]
    """The name under which the supplier is registered, and the name of the directory that its stores live in."""

    contract: ClassVar[int] = 1
    """The version of this contract that the supplier is written for. A release of Millpond that keeps another one
    refuses it. The first version need not be stated.
    """

    persistent: ClassVar[bool] = True
    """Whether a backend that is opened again on the same directory shows what was written before."""

    checksums: ClassVar[bool] = False
    """Whether the engine has checksums by which it finds all bytes that have changed on the disk, whenever it reads
    them, and also tells what it has lost when its process died.

    The files of any other engine are compared with what they were when it closed them, each time it is opened; of one
    with checksums only those of up to 1 MiB.
    """

    @classmethod
    @abstractmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the supplier for options as they stand in a URL.

        An option that is unknown, or whose value makes no sense, raises ``ConfigurationError``. The message names it.
        """

    @abstractmethod
    def open(self, directory: Path) -> Backend:
        """Open the backend on ``directory``, which is made if it does not exist. Its path may have any characters.

        The directory is the store, also where its rows lie elsewhere. A new directory is an empty store, whatever was
        kept under that path before. A directory that was renamed is the store that it was under its old name.

        An engine whose directory cannot be shared raises ``BackendInUseError`` while another process or handle has it
        open; the message names the directory. Where processes or handles do share it, each sees what the others wrote
        after its own next write or flush. An opening that raises leaves no file open.

        Damaged files raise ``CorruptStoreError``, here or at the read that finds the damage. With ``checksums``, files
        of more than 1 MiB in which any byte has changed raise it, or show what was written.
        """

    def destroy(self, directory: Path) -> None:
        """Delete what the store in ``directory`` has outside of it, before the caller deletes the directory.

        Nobody has it open then. What else the engine holds stays. A directory that is damaged, not there, or of no
        store is no error. A supplier whose stores are whole in their directories leaves this method as it is.
        """


@runtime_checkable
class SupportsMemoryBudget(Protocol):
    """A supplier whose backends share memory of a bounded size in each process, such as a cache and write buffers.

    All that a process opens with the same budget keep within it together.
    """

    def with_memory_budget(self, budget: int) -> BackendSupplier:
        """Return this supplier with a budget of so many bytes, which opens what this one has written.

        A supplier whose options say another budget, or that cannot do with it, raises ``ConfigurationError``.
        """

    def limit_memory(self, size: int) -> None:
        """Keep to ``size`` bytes of the budget from now on, in this process. What is open goes on."""


def with_memory_budget(supplier: BackendSupplier, budget: int | None) -> BackendSupplier:
    """Return ``supplier`` with a budget of so many bytes; as it is without one, or if its backends share no memory.

    Raises:
        ConfigurationError: its options say another budget, or it cannot do with this one.
    """
    if budget is None or not isinstance(supplier, SupportsMemoryBudget):
        return supplier
    return supplier.with_memory_budget(budget)
