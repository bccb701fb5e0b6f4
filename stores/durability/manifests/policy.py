"""When a commit writes a snapshot instead of a delta, and how long files are kept that no current manifest names."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from millpond.errors import InvalidArgumentError
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.encoding.times import Duration, to_length, to_millis

_SMALL: Final = 8
"""Deltas that take less than one part in so many of their snapshot may follow it in a longer chain."""


@dataclass(frozen=True)
class DurabilityPolicy:
    """The limits of a task's durable files.

    Args:
        usual_deltas: the longest chain of deltas that take more than an eighth of their snapshot's bytes together.
        max_deltas: the longest chain of deltas. Rewriting much state for few changes costs more than reading many small
            files does when it is restored.
        min_delta_bytes: deltas that are smaller than this together never call for a snapshot by their size.
        retained_commits: a manifest that is at most this many commits old can always be opened. Spark can go back by
            ``spark.sql.streaming.minBatchesToRetain`` batches (100), each of which may commit twice.
        retained_age: a file that is younger than this is never deleted, whatever the manifests say.
        retained_forks: how long the files of another run of the same state are protected, from its last sign of life: a
            run before a restart, or one that continues from a copy of the checkpoint.
        sealed_bytes: a local copy up to this size is compared in full with what it was when its engine closed it, each
            time it is opened; of a larger one only the sizes of its files. It concerns engines without checksums.
        prepared_rows: how many rows of a store a micro-batch copies at most into a directory in a new format, where
            that is prepared while the old one is in use. Usually they are fewer.
        prepared_share: how much longer a micro-batch may take for new formats, of what it takes itself.
        prepared_commits: how many commits may wait until they are written to a directory in a new format, which is
            done once half as many wait. Micro-batches see to it that they do not become more, whatever that costs.
    """

    usual_deltas: int = 64
    max_deltas: int = 384
    min_delta_bytes: int = 4 << 20
    retained_commits: int = 250
    retained_age: Duration = timedelta(minutes=10)
    retained_forks: Duration = timedelta(hours=6)
    sealed_bytes: int = 1 << 30
    prepared_rows: int = 50_000
    prepared_share: float = 0.2
    prepared_commits: int = 64

    def __post_init__(self) -> None:
        for what, least in (
            ("usual_deltas", 1),
            ("max_deltas", 1),
            ("min_delta_bytes", 1),
            ("retained_commits", 1),
            ("sealed_bytes", 0),
            ("prepared_rows", 1),
            ("prepared_share", 0),
            ("prepared_commits", 0),
        ):
            if getattr(self, what) < least:
                raise InvalidArgumentError(f"{what} is {getattr(self, what)}; it must be at least {least}")
        to_length(self.retained_age, "retained_age")
        to_length(self.retained_forks, "retained_forks")

    @property
    def retained_age_ms(self) -> int:
        return to_millis(self.retained_age, "retained_age")

    @property
    def retained_forks_ms(self) -> int:
        return to_millis(self.retained_forks, "retained_forks")

    def snapshot_due(self, manifest: Manifest) -> bool:
        """Whether the commit after ``manifest`` is to be a snapshot.

        By size: a snapshot once the deltas have outgrown the last one, so that a restore reads at most twice the state.
        By number: once they are many, so that a restore does not read too many files; on average a commit then writes
        at most eight times as much for snapshots as it writes for itself, unless the deltas are so small that the
        longest chain ends before.
        """
        if manifest.snapshot is None or len(manifest.deltas) >= self.max_deltas:
            return True
        size = manifest.snapshot.size
        if len(manifest.deltas) >= self.usual_deltas and manifest.delta_bytes > size / _SMALL:
            return True
        return manifest.delta_bytes > max(size, self.min_delta_bytes)

    def bases_after(self, manifest: Manifest) -> tuple[int, ...]:
        """The sequences of earlier snapshots that the manifest of a new snapshot has to remember.

        The garbage collection needs at least the newest one that all retained manifests descend from. A few per
        retention are enough: with fewer of them, garbage is collected later, never wrongly.
        """
        if manifest.snapshot is None:
            return ()
        apart = max(1, self.retained_commits // 16)
        bases = manifest.bases
        if not bases or manifest.snapshot.sequence - bases[-1] >= apart:
            bases = (*bases, manifest.snapshot.sequence)
        horizon = manifest.sequence - self.retained_commits
        expendable = sum(1 for base in bases if base <= horizon) - 1
        return bases[max(0, expendable) :]


def garbage_base(manifest: Manifest, policy: DurabilityPolicy) -> int | None:
    """The sequence below which no retained manifest names a file; None while there is no such point."""
    horizon = manifest.sequence - policy.retained_commits
    known = manifest.bases if manifest.snapshot is None else (*manifest.bases, manifest.snapshot.sequence)
    return max((base for base in known if base <= horizon), default=None)
