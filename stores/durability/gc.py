"""The garbage collection of durable files.

Rule of this module: a file is deleted only if no manifest that anybody may still open can name it. Nobody knows all
manifests: Spark keeps those of the last batches and may restart at any of them; an attempt that lost (a zombie) may
still be writing, and may even collect garbage itself. So the rule needs a single manifest, whether or not that is ever
committed:

1. Only files of the manifest's own lineage are looked at.
2. Let *horizon* be the manifest's sequence minus the retained commits, and *base* the newest snapshot at or before the
   horizon, of which the manifest knows that it is on its own branch. No base, nothing is deleted.
3. Files with a sequence below the base's are deleted, once they are older than the retained age.

Every manifest that can still be opened descends from the base, or is the base: it names the base or later files.
A restart at an earlier commit makes a new branch with the same sequence numbers and other names; both branches are kept
until the base has passed them. A zombie's manifest is at most one commit ahead of the last committed one, and the two
differ only in commits that are younger than the horizon of either, so its collection deletes nothing that is needed.
The age covers what counting cannot: an attempt that has read its manifest and is reading its files.
"""

import logging
import time

from millpond.errors import DurabilityError
from millpond.stores.durability.manifest import Manifest, sequence_of
from millpond.stores.durability.policy import DurabilityPolicy
from millpond.stores.durability.storage import Storage

_log = logging.getLogger(__name__)


def garbage_base(manifest: Manifest, policy: DurabilityPolicy) -> int | None:
    """The sequence below which no retained manifest names a file; None while there is no such point."""
    horizon = manifest.sequence - policy.retained_commits
    known = manifest.bases if manifest.snapshot is None else (*manifest.bases, manifest.snapshot.sequence)
    return max((base for base in known if base <= horizon), default=None)


def collect_garbage(storage: Storage, manifest: Manifest, policy: DurabilityPolicy, now_ms: int | None = None) -> int:
    """Delete the files of a task that no retained manifest can name.

    Args:
        storage: where they are.
        manifest: the newest manifest that is known; see the module's rule for why it need not be committed.
        policy: what is retained. It must allow going back as far as the caller wants to.
        now_ms: the time by the storage's clock.

    Returns:
        How many files were deleted.

    Raises:
        DurabilityError: the storage failed. What was deleted until then was garbage anyway.
    """
    base = garbage_base(manifest, policy)
    if base is None:
        return 0
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    youngest = now - policy.retained_age_ms
    deleted = 0
    for file in storage.list(manifest.directory):
        sequence = sequence_of(file.path.rpartition("/")[2])
        if sequence is not None and sequence < base and file.modified_ms <= youngest:
            storage.delete(file.path)
            deleted += 1
    return deleted


def try_collect_garbage(storage: Storage, manifest: Manifest, policy: DurabilityPolicy) -> None:
    """Collect garbage, but let no failure of it fail a commit: what remains is collected the next time."""
    try:
        collect_garbage(storage, manifest, policy)
    except DurabilityError as error:
        _log.warning("garbage of task %r stays for now: %s", manifest.task_id, error)
