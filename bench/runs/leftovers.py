"""What stores have outside of the directory of a run, such as in a server: it goes with the run."""

from pathlib import Path
from typing import Final

from millpond.bench.runs.process import reason
from millpond.stores.directory import delete_local_copy
from millpond.stores.registry import supplier

_STORES: Final = "*/*/*/*"
"""Where stores are below a local directory: by application, task and backend."""


def left_behind(backend: str, local_dir: Path) -> str | None:
    """Delete the stores of a local directory with all that they have elsewhere; why that failed, if it did."""
    try:
        for store in local_dir.glob(_STORES):
            delete_local_copy(supplier(backend), store)
    except Exception as error:
        return f"what its stores have outside of the directory could not be deleted: {reason(error)}"
    return None
