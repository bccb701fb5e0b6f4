"""The garbage collection of durable files.

Rule of this module: a file is deleted only if no manifest that anybody may still open can name it. Nobody knows all
manifests: Spark keeps those of the last batches and may restart at any of them; an attempt that lost (a zombie) may
still be writing, and may even collect garbage itself. So the rule needs a single manifest, whether or not that is ever
committed:

1. Only files of the manifest's own lineage are looked at.
2. Let *horizon* be the manifest's sequence minus the retained commits, and *base* the newest snapshot at or before the
   horizon that the manifest knows to be on its own branch. Without a base, nothing is deleted.
3. If a living pin of another run (``millpond.stores.durability.manifests.pins``) has an earlier base, that one counts.
4. Files with a sequence below the base's are deleted, once they are older than the retained age.

Every manifest that can still be opened descends from the base, or is the base: it names the base or later files. A
restart at an earlier commit makes a new branch with the same sequence numbers and other names; both branches are kept
until the base has passed them. A zombie's manifest is at most one commit ahead of the last committed one, and the two
differ only in commits that are younger than the horizon of either, so its collection deletes nothing that is needed.
The age covers what counting cannot: an attempt that has read its manifest and is reading its files. Pins and ages go by
the clock that dates the files, which a collection asks for the time, never by the clock of a host.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from millpond.errors import DurabilityError
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.pins import Pin, pin_path
from millpond.stores.durability.manifests.policy import DurabilityPolicy, garbage_base
from millpond.stores.durability.storage.clock import storage_ms
from millpond.stores.durability.storage.durable_file import new_commit_id, sequence_of
from millpond.stores.durability.storage.storage import Storage, StoredFile

_log = logging.getLogger(__name__)


def garbage(
    storage: Storage, manifest: Manifest, policy: DurabilityPolicy, run: str = "", *, now_ms: int
) -> list[StoredFile]:
    """Return the files of a task that no retained manifest can name, with dead pins first.

    Args:
        storage: the place of the files.
        manifest: the newest manifest that is known; see the module's rule for why it need not be committed.
        policy: the retention. It must allow going back as far as the caller wants to.
        run: the caller's run, whose own pins hold nothing back.
        now_ms: the time by the storage's clock. Another clock will do only to report, not to delete.

    Raises:
        DurabilityError: the storage failed.
    """
    own = garbage_base(manifest, policy)
    return [] if own is None else _garbage(storage.list(manifest.directory), own, policy, run, now_ms)


def _garbage(
    found: Sequence[StoredFile], own: int, policy: DurabilityPolicy, run: str, now_ms: int
) -> list[StoredFile]:
    """Return the garbage among the files of a lineage; without pins of others, all below the sequence ``own``."""
    pins = [pin for file in found if (pin := Pin.of(file)) is not None]
    base = min([own, *(pin.base for pin in pins if pin.run != run and pin.alive(policy, now_ms))])
    ended = [pin.file for pin in pins if (pin.run == run and pin.base < own) or not pin.alive(policy, now_ms)]
    passed = [file for file in found if (sequence := _sequence(file)) is not None and sequence < base]
    return [file for file in (*ended, *passed) if file.modified_ms <= now_ms - policy.retained_age_ms]


def collect_garbage(
    storage: Storage, manifest: Manifest, policy: DurabilityPolicy, run: str = "", now_ms: int | None = None
) -> int:
    """Delete what ``garbage`` returns for the same arguments.

    Args:
        storage: the place of the files.
        manifest: the newest manifest that is known.
        policy: the retention.
        run: the caller's run.
        now_ms: the time by the storage's clock; None to ask the storage for it, with a pin that is deleted again.

    Returns:
        The number of files deleted, without pins.

    Raises:
        DurabilityError: the storage failed, or does not date its files. Files that were deleted until then were garbage
            anyway.
    """
    return _collected(storage, manifest, policy, run, now_ms).deleted


class _Collected(NamedTuple):
    """The numbers of files of a lineage that were deleted and that are left; None if nobody has looked."""

    deleted: int
    left: int | None


def _collected(
    storage: Storage, manifest: Manifest, policy: DurabilityPolicy, run: str, now_ms: int | None
) -> _Collected:
    base = garbage_base(manifest, policy)
    if base is None:
        return _Collected(0, None)
    now = storage_ms(storage, pin_path(manifest, base, new_commit_id())) if now_ms is None else now_ms
    found = storage.list(manifest.directory)
    files = _garbage(found, base, policy, run, now)
    for file in files:
        storage.delete(file.path)
    deleted = sum(_sequence(file) is not None for file in files)
    return _Collected(deleted, sum(_sequence(file) is not None for file in found) - deleted)


def _sequence(file: StoredFile) -> int | None:
    return sequence_of(file.path.rpartition("/")[2])


def try_collect_garbage(storage: Storage, manifest: Manifest, policy: DurabilityPolicy, run: str) -> int | None:
    """Collect garbage, but let no failure of it fail a commit: the rest is collected the next time.

    Returns:
        The number of files left; None if nobody has looked.
    """
    try:
        return _collected(storage, manifest, policy, run, None).left
    except DurabilityError as error:
        _log.warning("garbage of task %r stays for now: %s", manifest.task_id, error)
        return None
