"""A storage that fails, and lies, by a plan.

Rule of this module: errors arise where a file system's would, below the storage's own handling of errors, and a stream
passes through here.
"""

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from millpond.stores.durability.storage.storage import Storage, StoredFile
from millpond.stores.testing.faults.plan import Fault, FaultPlan, InjectedStorageFault, Step

_WRITES_PER_STEP = 8


@dataclass(frozen=True, repr=False)
class FaultyStorage(Storage):
    """A storage whose steps fail by ``plan``. Build it with ``over``."""

    plan: FaultPlan

    @classmethod
    def over(cls, storage: Storage, plan: FaultPlan) -> Self:
        """Return a faulty storage at the same place as ``storage``."""
        return cls(storage.uri, plan, sync=storage.sync)

    @contextmanager
    def writing(self, path: str, *, keep: bool = False) -> Iterator[Any]:
        if self.plan.meet(Step.FILE_CREATE) is Fault.ERROR:
            raise InjectedStorageFault(self.plan.failure(Step.FILE_CREATE))
        with super().writing(path, keep=keep) as stream:
            faulty = _FaultyStream(stream, self.plan)
            yield faulty
            finish = self.plan.meet(Step.FILE_FINISH)
            if finish is Fault.ERROR:
                raise OSError(errno.ENOSPC, self.plan.failure(Step.FILE_FINISH))
        if faulty.lost:
            self.plan.lies[path] = faulty.whole
        if finish is Fault.APPLIED:
            raise InjectedStorageFault(self.plan.failure(Step.FILE_FINISH, "applied"))

    def _name(self, draft: str, path: str, *, once: bool = False) -> None:
        fault = self.plan.meet(Step.FILE_FINISH)
        if fault is not Fault.ERROR:
            super()._name(draft, path, once=once)
        if fault is not None:
            outcome = "applied" if fault is Fault.APPLIED else "not applied"
            raise InjectedStorageFault(self.plan.failure(Step.FILE_FINISH, outcome))

    def reading(self, path: str) -> Any:
        fault = self.plan.meet(Step.FILE_READ)
        if fault is Fault.ERROR:
            raise InjectedStorageFault(self.plan.failure(Step.FILE_READ))
        file = super().reading(path)
        if fault is not Fault.LIE:
            return file
        with file:
            content = bytearray(file.read())
        if content:
            content[len(content) // 3] ^= 1 << len(content) % 8
        return pa.BufferReader(bytes(content))

    def list(self, directory: str) -> Sequence[StoredFile]:
        fault = self.plan.meet(Step.FILE_LIST)
        if fault is Fault.ERROR:
            raise InjectedStorageFault(self.plan.failure(Step.FILE_LIST))
        files = super().list(directory)
        if fault is Fault.LAG and files:
            newest = max(files, key=lambda file: file.modified_ms)
            return [file for file in files if file is not newest]
        return files

    def sizes(self, directory: str, names: Sequence[str]) -> Mapping[str, int]:
        fault = self.plan.meet(Step.FILE_LIST)
        if fault is Fault.ERROR:
            raise InjectedStorageFault(self.plan.failure(Step.FILE_LIST))
        sizes = super().sizes(directory, names)
        if fault is Fault.LAG:
            return {name: size for name, size in sizes.items() if name != names[-1]}
        return sizes

    def delete(self, path: str) -> None:
        fault = self.plan.meet(Step.FILE_DELETE)
        if fault is Fault.LIE:
            return
        if fault is not Fault.ERROR:
            super().delete(path)
        if fault is not None:
            outcome = "applied" if fault is Fault.APPLIED else "not applied"
            raise InjectedStorageFault(self.plan.failure(Step.FILE_DELETE, outcome))


class _FaultyStream:
    """A stream that passes on bytes in halves, as far as the plan lets it."""

    def __init__(self, stream: Any, plan: FaultPlan) -> None:
        self._stream = stream
        self._plan = plan
        self._writes = 0
        self._parts: list[bytes] = []
        self.lost = False

    @property
    def whole(self) -> bytes:
        """All bytes that were to be written."""
        return b"".join(self._parts)

    def write(self, data: Any) -> None:
        content = bytes(data)
        self._parts.append(content)
        front, back = content[: len(content) // 2], content[len(content) // 2 :]
        self._pass_on(front)
        self._writes += 1
        if self._writes % _WRITES_PER_STEP == 1:
            self._stream.flush()
            fault = self._plan.meet(Step.FILE_WRITE)
            if fault is Fault.ERROR:
                raise OSError(errno.EIO, self._plan.failure(Step.FILE_WRITE, "written by half"))
            self.lost |= fault is Fault.LIE
        self._pass_on(back)

    def _pass_on(self, content: bytes) -> None:
        if not self.lost:
            self._stream.write(content)
