"""A backend that keeps the contract and grows with each write, and whose ``get`` looks at all rows."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from millpond.stores.backend.contract import Changes
from millpond.stores.backend.memory import MemoryBackend, MemorySupplier


class GrowingBackend(MemoryBackend):
    """Holds a file and half a megabyte for each large write that it has ever had."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._held: list[Any] = []
        directory.mkdir(parents=True, exist_ok=True)

    def get(self, key: bytes) -> bytes | None:
        return next((value for other, value in self.scan() if other == key), None)

    def write(self, changes: Changes) -> None:
        super().write(changes)
        if len(changes) > 1:
            file = os.open(self._directory / str(len(self._held)), os.O_RDWR | os.O_CREAT)
            os.write(file, bytes(2**19))
            self._held.append((file, os.urandom(2**20)))


@dataclass(frozen=True)
class GrowingSupplier(MemorySupplier):
    """Opens them."""

    name: ClassVar[str] = "growing"

    def open(self, directory: Path) -> GrowingBackend:
        return GrowingBackend(directory)
