"""The directories of a query's local copies on each machine.

Rule of this module: a query is known by what it writes and by where its state is, so that jobs of the same names do
not meet in one ``local_dir``::

    <local_dir>/<plain name of the sink>@<place of the state directory>/<application_id>/<task_id>/...
    <local_dir>/.standby@<plain name of the sink>@<place of the state directory>/...       what a standby restores

Releases before 0.2 left out the place. What they have left is taken over, task by task, by the first query of that name
that looks for it; whether it is of any use is for those to judge who open it.
"""

import logging
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from millpond.errors import BackendInUseError
from millpond.stores.backend.own_files import make_private
from millpond.stores.durability.copies.lease import Lease
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.specs.directory import QUERY_MARK, plain_name, refuse_linked_store

_log = logging.getLogger(__name__)


def query_directory(local_dir: str | Path, sink: str, storage: Storage) -> Path:
    """Return the directory of the local copies of the query for a sink below ``local_dir``."""
    return recorded_directory(local_dir, plain_name(sink), storage)


def recorded_directory(local_dir: str | Path, name: str, storage: Storage) -> Path:
    """Return the directory of a query by its sink's plain name, as records have it."""
    return _no_link(Path(local_dir) / f"{name}{QUERY_MARK}{storage.place}")


def beside(directory: Path) -> Path:
    """Return the directory of a standby, beside that of its query; no sink gives a directory such a name."""
    return _no_link(directory.with_name(f".standby{QUERY_MARK}{directory.name}"))


def _no_link(directory: Path) -> Path:
    """Return the directory of a query, refused if it is a link; ``local_dir`` itself may be one.

    Raises:
        StoreError: it is.
    """
    refuse_linked_store(directory)
    return directory


def directories_of(local_dir: Path, storage: Storage) -> Collection[Path]:
    """Return the directories of all queries whose state is, or may be, in a storage; none without a ``local_dir``."""
    if not local_dir.is_dir():
        return ()
    found = (path for path in local_dir.iterdir() if path.is_dir() and not path.name.startswith("."))
    return sorted(_no_link(path) for path in found if path.name.partition(QUERY_MARK)[2] in ("", storage.place))


def take_over(local_dir: str | Path, sink: str, storage: Storage, application_id: str, task_id: str) -> None:
    """Move the local copies of a task to where they are now, if an earlier release has left some and nobody uses them.

    Raises:
        StoreError: the directory cannot be used.
    """
    before = _no_link(Path(local_dir, plain_name(sink))) / application_id / task_id
    after = query_directory(local_dir, sink, storage) / application_id / task_id
    if after.exists() or not before.is_dir():
        return
    lease = Lease(before, timeout=0.0)
    try:
        lease.acquire()
    except BackendInUseError as error:
        _log.info("the local copies of task %r are restored elsewhere: %s", task_id, error)
        return
    try:
        with suppress(OSError):  # another worker was faster
            make_private(after.parent)
            before.rename(after)
    finally:
        lease.release()
