"""``HandleWrapper``: the base of every stream and table of the DSL, around a frozen handle."""

from typing import Generic, Protocol, Self, TypeVar

from millpond.processors.options.serdes import SerdeLike


class Handle(Protocol):
    """A stream or a table in the graph."""

    @property
    def node(self) -> str: ...
    @property
    def key_serde(self) -> SerdeLike | None: ...
    @property
    def value_serde(self) -> SerdeLike | None: ...


H = TypeVar("H", bound=Handle)


class HandleWrapper(Generic[H]):
    """Wraps a handle, which is never replaced."""

    def __init__(self, handle: H) -> None:
        self._handle = handle

    @property
    def handle(self) -> H:
        """The stream or table in the graph."""
        return self._handle

    @property
    def node(self) -> str:
        """The node that its records or updates come out of."""
        return self._handle.node

    @property
    def key_serde(self) -> SerdeLike | None:
        """The serde of its keys; None if not known."""
        return self._handle.key_serde

    @property
    def value_serde(self) -> SerdeLike | None:
        """The serde of its values; None if not known."""
        return self._handle.value_serde

    def _on(self, handle: H) -> Self:
        return type(self)(handle)
