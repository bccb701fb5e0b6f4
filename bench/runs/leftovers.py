"""The leftovers of stores outside a run's directory, such as in a server, which are deleted with the run."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from millpond.bench.runs.process import reason
from millpond.stores.backend.registry import supplier
from millpond.stores.specs.directory import delete_local_copy

_STORES: Final = "*/*/*/*"
"""The places of stores below a local directory: by application, task and backend."""


def left_by_store(backend: str, directory: Path) -> str | None:
    """Delete what the store of that directory has elsewhere; why that failed, if it did."""
    return _why_not(partial(_destroy, backend, directory))


def left_by_stores(backend: str, local_dir: Path) -> str | None:
    """Delete the stores of a local directory with all that they have elsewhere; why that failed, if it did."""
    return _why_not(partial(_delete_all, backend, local_dir))


def _destroy(backend: str, directory: Path) -> None:
    supplier(backend).destroy(directory)


def _delete_all(backend: str, local_dir: Path) -> None:
    for store in local_dir.glob(_STORES):
        delete_local_copy(supplier(backend), store)


def _why_not(delete: Callable[[], None]) -> str | None:
    try:
        delete()
    except Exception as error:
        return f"what its stores have outside of the directory could not be deleted: {reason(error)}"
    return None
