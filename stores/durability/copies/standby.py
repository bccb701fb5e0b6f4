"""Standby copies: copies of tasks that run elsewhere, kept where the workers of this machine would look for them.

Rule of this module: no worker waits for more than it would have to do itself. A copy follows in its place, under the
lease of its task, by the deltas that it misses. A copy that needs a restore is restored beside, and moved in once it is
whole. A task whose lease is held is left alone, and so is a task whose lease another process has had since the version
before the last was committed: a worker of this machine is carrying it forward.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from millpond.errors import ArgumentConflictError, BackendInUseError, LocalDirectoryError
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.own_files import make_private
from millpond.stores.durability.copies.clean_shutdown import seal_path
from millpond.stores.durability.copies.lease import Lease, LeaseMark, lease_mark
from millpond.stores.durability.copies.local import LocalCopy
from millpond.stores.durability.copies.warming import Warmed, warm
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.durability.parquet.sources import Fetched
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.specs.directory import delete_local_copy
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.location import StoreLocation
from millpond.stores.specs.store_spec import StoreSpec


class StandbyTask:
    """The standby copies of one task, from round to round.

    Args:
        specs: the task's stores, as the job has them. Those whose backend keeps nothing on disk are left out.
        supplier: the backend of stores whose spec names none.
        application_id: the task's application.
        task_id: the task.
        local_dir: the directory of the workers' copies on this machine.
        beside: another directory of that file system, for copies that are restored.
        storage: the place of the durable files.
        policy: the job's policy.
        lag: the number of commits that a copy may be behind before it is brought on.
        as_recorded: whether the kinds of ``specs`` come from an evolution record, as for ``warm``.

    Attributes:
        stood: the version at which the copies stand; None if there are none that can follow, or a worker has them.
    """

    def __init__(
        self,
        specs: Sequence[StoreSpec],
        supplier: BackendSupplier,
        *,
        application_id: str,
        task_id: str,
        local_dir: Path,
        beside: Path,
        storage: Storage,
        policy: DurabilityPolicy | None = None,
        lag: int = 0,
        as_recorded: bool = False,
    ) -> None:
        def places(root: Path) -> list[StoreLocation]:
            names = {"application_id": application_id, "task_id": task_id}
            every = (StoreLocation.of(spec, supplier, local_dir=root, **names) for spec in specs)
            return [place for place in every if place.supplier.persistent]

        self.stood: Manifest | None = None
        self._specs = specs
        self._supplier = supplier
        self._storage = storage
        self._policy = policy or DurabilityPolicy()
        self._lag = lag
        self._as_recorded = as_recorded
        self._root = beside
        self._directory, self._beside = (root / application_id / task_id for root in (local_dir, beside))
        self._places, self._places_beside = places(local_dir), places(beside)
        self._copies = [LocalCopy(place, self._policy) for place in self._places]
        self._noted = False
        self._mark: LeaseMark | None = None
        self._own: LeaseMark | None = None
        self._seen: tuple[LeaseMark, Manifest] | None = None

    def note(self) -> None:
        """Note the last user of the copies. Call it before reading the manifest that is to be followed.

        Raises:
            StoreError: the local directory cannot be read.
        """
        self._noted = True
        self._mark = self._marked()

    def follow(self, manifest: Manifest) -> list[Warmed] | None:
        """Bring the copies to ``manifest``, the task's newest, unless they are near enough.

        Returns:
            The copies that are warm; None if a worker of this machine has the task, or has had it just now.

        Raises:
            ConfigurationError: there is a copy in another format than the one to keep.
            BackendInUseError: another process restores the task, too.
            MissingFileError: a file is gone; if it is garbage by now, a newer manifest does not name it.
            CorruptFileError, DurabilityError: the durable state is damaged, or the storage failed.
            StoreFullError: there is no room for a copy.
            StoreError: the local directory cannot be used.
        """
        for place in self._places:
            _refuse_other_formats(place)
        try:
            warmed = None if self._carried(manifest) else self._followed(manifest)
        finally:
            self._clear()
        if warmed is None:
            self.stood = None
        return warmed

    def _carried(self, manifest: Manifest) -> bool:
        """Return whether a worker of this machine carries the copies forward.

        The mark was noted before the manifest was read, so the process that left it was at work on the version after
        that, at most. A process that works on a later version leaves another mark. So if two more versions come and the
        mark stays, the second of them was made elsewhere.
        """
        if not self._noted:
            self.note()
            return self._mark is not None and not self._mark.ended
        mark, seen = self._mark, self._seen
        if mark is None or mark == self._own:
            return False
        if seen is None or seen[0] != mark or seen[1].lineage != manifest.lineage:
            self._seen = seen = (mark, manifest)
        return manifest.sequence < seen[1].sequence + 2

    def _followed(self, manifest: Manifest) -> list[Warmed] | None:
        if self._near(manifest):
            return [Warmed(place.spec.name, restored=False, rows=0) for place in self._places]
        with _leased(self._directory) as lease:
            if lease is None:
                return None
            self._own = self._marked()
            warmed = self._in_place(manifest)
        if warmed is None:
            self.stood = None
            warmed = self._restored(manifest)
        if warmed is not None:
            self.stood = manifest
        return warmed

    def _near(self, manifest: Manifest) -> bool:
        if self.stood is None or self._mark != self._own or self.stood.lineage != manifest.lineage:
            return False
        behind = manifest.sequence - self.stood.sequence
        return manifest.commit == self.stood.commit or 0 < behind <= self._lag

    def _in_place(self, manifest: Manifest) -> list[Warmed] | None:
        warmed: list[Warmed] = []
        with Fetched(self._storage, manifest) as source:
            for copy in self._copies:
                brought = copy.follow(manifest, source)
                if brought is None:
                    return None
                warmed.append(Warmed(copy.spec.name, *brought))
        return warmed

    def _restored(self, manifest: Manifest) -> list[Warmed] | None:
        """Restore the copies beside, and move them in unless a worker has taken up the task meanwhile."""
        warmed = warm(
            self._specs,
            self._supplier,
            manifest,
            local_dir=self._root,
            storage=self._storage,
            policy=self._policy,
            lease_timeout=0.0,
            as_recorded=self._as_recorded,
        )
        if self._marked() != self._own:
            return None
        with _leased(self._directory) as lease:
            if lease is None:
                return None
            self._own = self._marked()
            self._move_in()
        return warmed

    def _move_in(self) -> None:
        # The seal goes first and comes last: a process that dies in between leaves a copy that is thrown away.
        for place, beside in zip(self._places, self._places_beside, strict=True):
            try:
                seal_path(place.directory).unlink(missing_ok=True)
                delete_local_copy(place.supplier, place.directory)
                place.refuse_links()
                make_private(place.directory.parent)
                beside.directory.rename(place.directory)
                seal_path(beside.directory).rename(seal_path(place.directory))
            except OSError as error:
                raise LocalDirectoryError(f"a standby copy cannot be moved to {place.directory}: {error}") from error

    def _clear(self) -> None:
        """Delete leftovers of a restore, of this process or one that has died."""
        if not self._beside.is_dir():
            return
        with _leased(self._beside) as lease:
            if lease is None:
                return
            for place in self._places_beside:
                seal_path(place.directory).unlink(missing_ok=True)
                delete_local_copy(place.supplier, place.directory)
                with suppress(OSError):
                    place.directory.parent.rmdir()
            lease.retire()

    def _marked(self) -> LeaseMark | None:
        try:
            return lease_mark(self._directory)
        except OSError as error:
            raise LocalDirectoryError(
                f"{self._directory} cannot be read: {error}; make it a directory that this process may read"
            ) from error


@contextmanager
def _leased(directory: Path) -> Iterator[Lease | None]:
    """The lease on a task's directory; None if somebody has it."""
    lease = Lease(directory, timeout=0.0)
    try:
        lease.acquire()
    except BackendInUseError:
        yield None
        return
    try:
        yield lease
    finally:
        lease.release()


def _refuse_other_formats(place: StoreLocation) -> None:
    """Refuse to keep a copy in a format that the job does not have, as far as its own copy tells."""
    for version in FormatVersion:
        directory = place.directory.with_name(version.directory_name(place.spec.name))
        if directory != place.directory and directory.is_dir():
            raise ArgumentConflictError(
                f"{directory} is in another format than {place.directory.name!r}, which is to be kept on standby; give "
                "the options that the job has (--checksums, --topology), and if the directory was left by an earlier "
                "format of the job, delete it"
            )
