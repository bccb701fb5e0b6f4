"""The policy of durability: when a commit writes a snapshot instead of a delta, and how long unnamed files are kept."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

from millpond.errors import InvalidArgumentError
from millpond.stores.durability.manifests.base import Base
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.parts import Parts
from millpond.stores.durability.storage.durable_file import DurableFile
from millpond.stores.encoding.times import Duration, to_length, to_millis

_STEPS: Final = 16
"""The least number of steps of a snapshot, unless that makes them smaller than they have to be."""

_DELTAS_PER_STEP: Final = 4
"""The number of deltas in a chain for which there is one more step."""

_AS_CHANGED: Final = 2
"""The least multiple of its commit's changes that a step takes, so that the next deltas do not outgrow it."""

_SMALL: Final = 8
"""The part of their snapshot below which deltas may follow it in a longer chain, as one in so many."""


class StepSize(NamedTuple):
    """The amount of a snapshot that one commit writes: a little more than these rows or bytes, whichever come first."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class DurabilityPolicy:
    """The limits of a task's durable files.

    Args:
        usual_deltas: the longest chain of deltas that take more than an eighth of their snapshot's bytes together.
        max_deltas: the longest chain of deltas. Rewriting much state for few changes costs more than reading many small
            files at a restore.
        min_delta_bytes: deltas with fewer bytes together never call for a snapshot by their size.
        step_rows: the least number of rows of a snapshot that a commit writes, unless fewer are left. Snapshots of more
            rows are written in steps, by one commit after the other.
        retained_commits: the age in commits up to which a manifest can always be opened. Spark can go back by
            ``spark.sql.streaming.minBatchesToRetain`` batches (100), each of which may commit twice.
        retained_age: the age below which a file is never deleted, whatever the manifests say.
        retained_forks: the time for which the files of another run of the same state are protected, from its last sign
            of life: of a run before a restart, or one that continues from a copy of the checkpoint.
        sealed_bytes: the size up to which a local copy is compared in full, each time it is opened, with its state when
            its engine closed it; of a larger one only the sizes of files are. It concerns engines without checksums.
        prepared_rows: the most rows of a store that a micro-batch copies into a directory in a new format, which is
            prepared while the old one is in use. Usually they are fewer.
        prepared_share: how much longer a micro-batch may take for new formats, as a share of its own time.
        prepared_commits: the most commits that wait to be written to a directory in a new format, which begins once
            half as many wait. Micro-batches keep to that number at any cost.
    """

    usual_deltas: int = 64
    max_deltas: int = 384
    min_delta_bytes: int = 4 << 20
    step_rows: int = 1 << 16
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
            ("step_rows", 1),
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
        """Return whether the commit after ``manifest`` is to be a snapshot.

        By size: a snapshot once the deltas have outgrown the last one, so that a restore reads at most twice the state.
        By number: once they are many, so that a restore does not read too many files; on average a commit then writes
        at most eight times as much for snapshots as for itself, unless the deltas are so small that the longest chain
        ends before.
        """
        if manifest.snapshot is None or len(manifest.deltas) >= self.max_deltas:
            return True
        size = manifest.snapshot.size
        if len(manifest.deltas) >= self.usual_deltas and manifest.delta_bytes > size / _SMALL:
            return True
        return manifest.delta_bytes > max(size, self.min_delta_bytes)

    def step_size(self, version: Manifest, changed: int) -> StepSize | None:
        """Return the size of the step of a snapshot in a commit that changes so many rows; None to write all at once.

        No step is long, compared with the whole snapshot and with the other work of its commit, and the number of steps
        is bounded: each takes its share of all rows, or of all bytes.
        """
        runs = version.files
        rows, size = sum(file.own_rows for file in runs), sum(file.own_size for file in runs)
        if rows <= self.step_rows and size <= self.min_delta_bytes:
            return None
        steps = max(_STEPS, len(version.deltas) // _DELTAS_PER_STEP)
        return StepSize(
            max(self.step_rows, _AS_CHANGED * changed, rows // steps + 1), max(self.min_delta_bytes, size // steps + 1)
        )

    def bases_after(self, manifest: Manifest) -> tuple[Base, ...]:
        """Return the earlier snapshots that the manifest of a new snapshot has to remember.

        The garbage collection needs at least the newest one that all retained manifests descend from. A few per
        retention are enough: with fewer of them, garbage is collected later, never wrongly.
        """
        if manifest.snapshot is None:
            return ()
        apart = max(1, self.retained_commits // 16)
        bases = manifest.bases
        if not bases or manifest.snapshot.sequence - bases[-1].sequence >= apart:
            bases = (*bases, _base(manifest.snapshot, manifest.parts))
        horizon = manifest.sequence - self.retained_commits
        expendable = sum(1 for base in bases if base.since <= horizon) - 1
        return bases[max(0, expendable) :]


def garbage_base(manifest: Manifest, policy: DurabilityPolicy) -> int | None:
    """Return the sequence below which no retained manifest names a file; None while there is no such point."""
    horizon = manifest.sequence - policy.retained_commits
    known = manifest.bases
    if manifest.snapshot is not None:
        known = (*known, _base(manifest.snapshot, manifest.parts))
    return max((base.sequence for base in known if base.since <= horizon), default=None)


def _base(snapshot: DurableFile, parts: Parts | None) -> Base:
    return Base(snapshot.sequence, snapshot.sequence if parts is None else parts.since)
