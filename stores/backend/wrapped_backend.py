"""``WrappedBackend``: what stands around a backend and shows its rows otherwise.

Rule of this module: it passes on what does not depend on how rows are shown. Reading and writing are up to subclasses.
"""

from collections.abc import Callable
from pathlib import Path

from millpond.stores.backend.contract import (
    Backend,
    SupportsCheckpoint,
    SupportsMemoryUse,
    entry_count,
    last_finder,
    size_on_disk,
)


class WrappedBackend(Backend):
    """A backend that stands around another one, and has ``checkpoint`` and ``memory_use`` only if that has them.

    Args:
        engine: the other one.
    """

    def __init__(self, engine: Backend) -> None:
        self._engine = engine
        self._get = engine.get
        self._find_last = last_finder(engine)
        if isinstance(engine, SupportsCheckpoint):
            self.checkpoint: Callable[[Path], None] = engine.checkpoint
        if isinstance(engine, SupportsMemoryUse):
            self.memory_use: Callable[[], int] = engine.memory_use

    @property
    def engine(self) -> Backend:
        """The backend that it stands around."""
        return self._engine

    def entry_count(self) -> int:
        """Return the engine's count, which may have fewer entries, or be an estimate."""
        return entry_count(self._engine)

    def size_on_disk(self) -> int:
        """Return the engine's size."""
        return size_on_disk(self._engine)

    def flush(self) -> None:
        self._engine.flush()

    def close(self) -> None:
        self._engine.close()
