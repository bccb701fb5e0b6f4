"""Global stores, as processors see them that do not fill them: whatever would change an entry is refused.

Each task has a copy of its own, so a change by one of them would be known to no other.
"""

from collections.abc import Callable
from functools import cache
from inspect import isfunction
from typing import Any, NoReturn

from millpond.errors import ProcessorUseError
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.store import WritableStore


def as_reader(store: WritableStore[Any, Any], kind: StoreKind) -> WritableStore[Any, Any]:
    """Return the same open store for reading: it sees all that is written to it, and refuses to write entries."""
    reading = _reading(type(store), kind)
    reader = reading.__new__(reading)
    reader.__dict__ = store.__dict__
    return reader


@cache
def _reading(written: type[WritableStore[Any, Any]], kind: StoreKind) -> type[WritableStore[Any, Any]]:
    """Return a class of stores that has the methods of ``written`` that write entries only to refuse them."""
    kept = {*dir(kind.traits.read_only), *dir(WritableStore)}
    writing = (name for name in dir(written) if not name.startswith("_") and name not in kept)
    refused = {name: _refused(name) for name in writing if isfunction(getattr(written, name))}
    return type(written.__name__, (written,), refused)


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(self: WritableStore[Any, Any], *arguments: Any, **options: Any) -> NoReturn:
        raise ProcessorUseError(
            f"store {self.name!r} is global: every task has a copy, so only the processor that fills it may call "
            f"{name}; send a record to its topic instead, or add a store with add_state_store"
        )

    return refuse
