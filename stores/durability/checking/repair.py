"""Repairs of what a verification found, each described before it is done.

Rule of this module: only files that can be made anew are deleted: local copies, and garbage. Durable files that a
retained manifest may name are never touched.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from millpond.stores.durability.checking.copy_verification import discard_copy
from millpond.stores.durability.checking.findings import Report, Subject
from millpond.stores.durability.manifests.garbage import collect_garbage, garbage
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.durability.storage.clock import host_ms
from millpond.stores.durability.storage.storage import Storage


class Repair(NamedTuple):
    """A repair.

    Attributes:
        what: its description.
        do: does it.
    """

    what: str
    do: Callable[[], object]


def repairs_of_copies(report: Report) -> list[Repair]:
    """Return the repairs of local copies that must not be used."""
    return [
        Repair(
            f"delete the local copy {finding.where}; the next start restores it",
            partial(discard_copy, Path(finding.where)),
        )
        for finding in report.findings
        if finding.subject is Subject.COPY
    ]


def retention(
    policy: DurabilityPolicy, newest: Collection[Manifest], retained: Collection[Manifest]
) -> DurabilityPolicy:
    """Return a policy that retains what ``policy`` does, and all files of micro-batches to which a query can go back.

    Args:
        policy: the least retention.
        newest: the manifests after the last micro-batch.
        retained: the manifests of earlier micro-batches; the earliest of each lineage counts.
    """
    first: dict[str, int] = {}
    for one in retained:
        if one.files:
            sequence = one.files[0].sequence
            first[one.directory] = min(sequence, first.get(one.directory, sequence))
    spans = [one.sequence - first.get(one.directory, 0) for one in newest]
    return replace(policy, retained_commits=max([policy.retained_commits, *spans]))


def repairs_of_garbage(storage: Storage, manifests: Collection[Manifest], policy: DurabilityPolicy) -> Iterator[Repair]:
    """Yield the repairs that delete files which nobody can need any more.

    Args:
        storage: the place of the files.
        manifests: the newest manifest of each task.
        policy: the retention.

    Raises:
        DurabilityError: the storage failed.
    """
    for manifest in manifests:
        files = garbage(storage, manifest, policy, now_ms=host_ms())
        if files:
            where, size = storage.describe(manifest.directory), sum(file.size for file in files)
            yield Repair(
                f"delete {len(files)} files ({size:,} bytes) beyond the retention in {where}; fewer if this host's "
                "clock, by which they are old, is ahead of the one that dates them",
                partial(collect_garbage, storage, manifest, policy),
            )
