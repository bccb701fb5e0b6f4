"""``WrappedBackend``: a wrapper around a backend that shows its rows in another form.

Rule of this module: it passes on calls that do not depend on the form of rows. Reading and writing are up to
subclasses.
"""

from millpond.stores.backend.contract import Backend


class WrappedBackend(Backend):
    """A backend that stands around another one.

    Args:
        engine: the other backend.
    """

    def __init__(self, engine: Backend) -> None:
        self._engine = engine
        self._get = engine.get
        self._find_last = engine.last

    @property
    def engine(self) -> Backend:
        """The wrapped backend."""
        return self._engine

    def entry_count(self) -> int:
        """Return the engine's count, which may have fewer entries, or be an estimate."""
        return self._engine.entry_count()

    def memory_use(self) -> int:
        """Return the engine's use."""
        return self._engine.memory_use()

    def flush(self) -> None:
        self._engine.flush()

    def close(self) -> None:
        self._engine.close()
