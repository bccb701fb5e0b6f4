"""The cleaning of a state directory.

Rule of this module: files that a checkpoint names stay, and so do young files and those that a living run has pinned.
Nobody knows all checkpoints, so a file that none of the given ones names may belong to another: it goes only if the
user says that there is no other checkpoint. If anything of an application is not understood, damaged or a symbolic
link, all of that application stays.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Final

from millpond.errors import DurabilityError, FormatError, NotCleanedError
from millpond.stores.backend.own_files import FOLLOWED_NOT
from millpond.stores.cleaning.leftover import Age, GarbageKind, Leftover
from millpond.stores.cleaning.named import Named
from millpond.stores.durability.checking.repair import retention
from millpond.stores.durability.manifests.claim import claimed_by, is_claim
from millpond.stores.durability.manifests.former_names import is_former_name
from millpond.stores.durability.manifests.garbage import garbage
from millpond.stores.durability.manifests.manifest import TASK_ID, Manifest
from millpond.stores.durability.manifests.pins import Pin
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.durability.manifests.schema_log import is_schema
from millpond.stores.durability.parquet.file_faults import broken_file
from millpond.stores.durability.storage.clock import clocks_apart, is_probe, probe
from millpond.stores.durability.storage.durable_file import sequence_of
from millpond.stores.durability.storage.storage import Storage, StoredFile
from millpond.stores.evolution.backfilling import BACKFILL, abandoned
from millpond.stores.evolution.history import EVOLUTION, History, is_record, sinks_of

LEFT_OUT: Final = frozenset(("dead-letters", "late-rows"))
"""The directories of rows that a job has left out: they are the user's, as results are."""

TABLE_VERSIONS: Final = "table-versions"
"""The directory of the versions of others' tables that micro-batches have read; a query deletes old ones."""

_ID: Final = re.compile(r"[0-9a-f]{32}")
_DRAFT: Final = re.compile(r"(.+)\.[0-9a-f]{32}")
_UNFINISHED: Final = "a write that never came to its end"


@dataclass(frozen=True)
class StateCleaning:
    """The cleaning of a state directory.

    Attributes:
        storage: the directory.
        named: the manifests that the given checkpoints name.
        alone: whether no other checkpoint has state of an application, as the user says.
        age: the age at which a leftover may go.
        policy: the rule for dead pins, and the least retention.
    """

    storage: Storage
    named: Sequence[Named]
    alone: Callable[[str], bool]
    age: Age
    policy: DurabilityPolicy

    def leftovers(self) -> Iterator[Leftover]:
        """Yield the leftovers, application by application.

        Raises:
            DurabilityError: the storage failed.
        """
        for file in self.storage.list(""):
            yield self._beside(file)
        for application_id in self.storage.directories(""):
            try:
                found = list(_Application(self, application_id).leftovers())
            except (DurabilityError, FormatError) as error:
                where = self.storage.describe(application_id)
                found = [Leftover(GarbageKind.UNKNOWN, where, 0, f"nothing of it is touched: {error}")]
            yield from found

    def _beside(self, file: StoredFile) -> Leftover:
        """Return a file beside the applications."""
        where = self.storage.describe(file.path)
        if not is_probe(file.path):
            return Leftover(GarbageKind.UNKNOWN, where, file.size, "no application of Millpond's")
        if not self.age.reached(file.modified_ms):
            return Leftover(GarbageKind.DRAFT, where, file.size, self.age.told(file.modified_ms))
        return Leftover(GarbageKind.DRAFT, where, file.size, _UNFINISHED, partial(self.storage.delete, file.path))


@dataclass(frozen=True)
class _Verdict:
    """The verdict on some files: whether they may go, and why."""

    goes: bool
    why: str


class _Application:
    """The state of one application."""

    def __init__(self, cleaning: StateCleaning, application_id: str) -> None:
        self._cleaning = cleaning
        self._storage = cleaning.storage
        self._age = cleaning.age
        self._id = application_id
        self._alone = cleaning.alone(application_id)
        versions = chain.from_iterable(one.retained for one in cleaning.named)
        self._retained = [one for one in chain.from_iterable(versions) if one.application_id == application_id]
        self._bases: list[Manifest] = []

    def leftovers(self) -> Iterator[Leftover]:
        files, directories = self._list(self._id), self._directories(self._id)
        if directories and {*LEFT_OUT, TABLE_VERSIONS}.issuperset(directories) and not files:
            yield from (self._stranger(f"{self._id}/{name}") for name in directories)
            return
        if EVOLUTION not in directories and claimed_by(self._storage, self._id) is None:
            yield Leftover(GarbageKind.UNKNOWN, self._describe(self._id), _size(files), "no application of Millpond's")
            return
        histories = [History.of(self._storage, self._id, sink) for sink in sinks_of(self._storage, self._id)]
        self._bases = [base for one in histories for record in one.records for base in record.bases.values()]
        records = [file for sink in histories for file in self._list(f"{self._id}/{EVOLUTION}/{sink.sink}")]
        drafts, strangers = self._drafts_and_strangers(files, directories, records)
        abandoned_here = [path for history in histories for path in abandoned(history)]
        tasks = [name for name in directories if TASK_ID.fullmatch(name)]
        lineages = [f"{self._id}/{task}/{name}" for task in tasks for name in self._directories(f"{self._id}/{task}")]
        strangers += [file.path for task in tasks for file in self._list(f"{self._id}/{task}")]
        yield from (self._stranger(path) for path in strangers)
        if not self._retained:
            yield self._whole(strangers, lineages)
            return
        yield Leftover(
            GarbageKind.APPLICATION,
            self._describe(self._id),
            self._needed_size(),
            f"stays: {', '.join(self._checkpoints())} has its state",
        )
        yield from (self._leftover(GarbageKind.DRAFT, [file], _UNFINISHED) for file in drafts)
        for path in abandoned_here:
            yield self._leftover(GarbageKind.BACKFILL, self._tree(path), "another attempt at the backfill counts", path)
        for path in lineages:
            if path not in abandoned_here:
                yield from self._lineage(path)

    def _drafts_and_strangers(
        self, files: Collection[StoredFile], directories: Collection[str], records: Collection[StoredFile]
    ) -> tuple[list[StoredFile], list[str]]:
        """Return the drafts of files beside an application's tasks, and the paths that are not known."""
        drafts: list[StoredFile] = []
        strangers = [
            f"{self._id}/{name}"
            for name in directories
            if name not in (EVOLUTION, BACKFILL) and not TASK_ID.fullmatch(name)
        ]
        for known, found in ((_is_plain, files), (is_record, records)):
            for file in found:
                draft = _DRAFT.fullmatch(_name(file))
                if is_probe(_name(file)) or (draft is not None and known(draft[1])):
                    drafts.append(file)
                elif not known(_name(file)):
                    strangers.append(file.path)
        return drafts, strangers

    def _whole(self, strangers: Collection[str], lineages: Collection[str]) -> Leftover:
        """Return an application that no given checkpoint names."""
        files = self._tree(self._id)
        leftover = Leftover(GarbageKind.APPLICATION, self._describe(self._id), _size(files), "")
        verdicts = [self._verdict(self._list(path), path) for path in lineages]
        staying = [one.why for one in verdicts if not one.goes]
        if not self._alone:
            return leftover.kept(f"no checkpoint that was given has its state; if none has, {self._say}")
        if strangers:
            first = min(strangers)
            what = "has rows that the job has left out" if self._is_left_out(first) else "is not Millpond's"
            return leftover.kept(f"{self._describe(first)} {what}; move it away first")
        if staying:
            return leftover.kept(staying[0])
        # The claim and the records go last: until then they show what the rest is.
        ordered = sorted(files, key=lambda file: (_is_late(file.path), file.path))
        return self._leftover(GarbageKind.APPLICATION, ordered, "no checkpoint has its state, as you say", self._id)

    def _lineage(self, path: str) -> Iterator[Leftover]:
        """Yield what may go of a lineage: parts of it if a checkpoint names it, else all."""
        files = self._list(path)
        naming = [one for one in self._retained if one.directory == path]
        if not naming:
            if not any(base.directory == path for base in self._bases):
                verdict = self._verdict(files, path)
                leftover = Leftover(GarbageKind.LINEAGE, self._describe(path), _size(files), verdict.why)
                yield self._leftover(GarbageKind.LINEAGE, files, verdict.why, path) if verdict.goes else leftover
            return
        newest = max(naming, key=lambda one: one.sequence)
        broken = broken_file(self._storage, newest)
        if broken is not None:
            yield Leftover(
                GarbageKind.LINEAGE, self._describe(path), _size(files), f"nothing of it is touched: {broken}"
            )
            return
        policy = retention(self._cleaning.policy, [newest], naming)
        passed = garbage(self._storage, newest, policy, now_ms=self._age.now_ms)
        yield from self._old_ones(
            GarbageKind.GARBAGE, passed, "no micro-batch to which the query can go back needs them"
        )
        names = {file.name for one in (*naming, *self._bases) if one.directory == path for file in one.named}
        numbers = {file.sequence for one in naming for file in one.files}
        rest = [file for file in files if file not in passed and _name(file) not in names]
        newer = newest.sequence
        lost = [file for file in rest if (number := sequence_of(_name(file)) or 0) in numbers or number > newer]
        for attempts in self._old_ones(GarbageKind.ATTEMPT, lost, "of attempts that failed or lost"):
            if len({pin.run for pin in self._living(files)}) > 1:
                yield attempts.kept("several runs of this state live, and one of them may need it")
            elif not self._alone:
                yield attempts.kept(f"may be another checkpoint's; if there is no other one, {self._say}")
            else:
                yield attempts
        unknown = (file for file in files if sequence_of(_name(file)) is None and Pin.of(file) is None)
        yield from (self._stranger(file.path) for file in unknown)

    def _verdict(self, files: Collection[StoredFile], path: str) -> _Verdict:
        """Return whether a lineage may go that no given checkpoint names."""
        unknown = [file for file in files if sequence_of(_name(file)) is None and Pin.of(file) is None]
        below = self._directories(path)
        if unknown or below or not _ID.fullmatch(path.rpartition("/")[2]):
            stranger = next(iter([*(file.path for file in unknown), *(f"{path}/{name}" for name in below)]), path)
            return _Verdict(False, f"{self._describe(stranger)} is not Millpond's; move it away first")
        if self._living(files):
            return _Verdict(False, "a run that needs it has lately renewed its pin")
        young = [file for file in files if not self._age.reached(file.modified_ms)]
        if young:
            return _Verdict(False, self._age.told(max(file.modified_ms for file in young)))
        if not self._alone:
            return _Verdict(False, f"no checkpoint that was given names it; if there is no other one, {self._say}")
        return _Verdict(True, "no checkpoint names it, as you say")

    def _living(self, files: Collection[StoredFile]) -> list[Pin]:
        pins = [pin for file in files if (pin := Pin.of(file)) is not None]
        return [pin for pin in pins if pin.alive(self._cleaning.policy, self._age.now_ms)]

    def _old_ones(self, what: GarbageKind, files: Collection[StoredFile], why: str) -> Iterator[Leftover]:
        """Yield the old ones among the files of one lineage that nobody needs."""
        old = [file for file in files if self._age.reached(file.modified_ms)]
        if old:
            where = self._describe(old[0].path.rpartition("/")[0])
            yield Leftover(what, where, _size(old), f"{len(old)} files: {why}", partial(self._delete, old, None))

    def _leftover(self, what: GarbageKind, files: Sequence[StoredFile], why: str, path: str | None = None) -> Leftover:
        """Return a leftover that may be deleted if it is old enough: some files, or all files below ``path``."""
        where = files[0].path if path is None else path
        latest = max((file.modified_ms for file in files), default=1)
        if not all(self._age.reached(file.modified_ms) for file in files):
            return Leftover(what, self._describe(where), _size(files), self._age.told(latest))
        return Leftover(what, self._describe(where), _size(files), why, partial(self._delete, files, path))

    def _delete(self, files: Sequence[StoredFile], path: str | None) -> None:
        """Delete files, and the directories that are empty then.

        Raises:
            StateConflictError: somebody has written there since they were found, or the clocks are apart; nothing has
                changed.
            DurabilityError: the storage failed.
        """
        if self._clocks_apart is not None:
            raise NotCleanedError(
                f"{self._clocks_apart}, so nothing tells how old they are; set this host's clock and clean again"
            )
        if path is not None:
            changed = set(self._tree(path)) - set(files)
            if changed:
                raise NotCleanedError(
                    f"{self._describe(min(changed).path)} was written meanwhile, so {self._describe(path)} stays"
                )
        for file in files:
            self._storage.delete(file.path)
        parents = {file.path.rpartition("/")[0] for file in files} | ({path} if path is not None else set())
        above = {"/".join(parts[:n]) for one in parents for parts in [one.split("/")] for n in range(1, len(parts) + 1)}
        for directory in sorted(above, key=len, reverse=True):
            self._storage.delete_empty(directory)

    @cached_property
    def _clocks_apart(self) -> str | None:
        """A message if the files are not dated by this host's clock, which gave their ages; None if they are."""
        return clocks_apart(self._storage.clock_ms(probe(self._id)), self._describe(""))

    @property
    def _say(self) -> str:
        return f"say --application {self._id}"

    def _needed_size(self) -> int:
        return sum({one.path(file): file.size for one in self._retained for file in one.files}.values())

    def _checkpoints(self) -> list[str]:
        return [
            one.where
            for one in self._cleaning.named
            if any(manifest.application_id == self._id for batch in one.retained for manifest in batch)
        ]

    def _stranger(self, path: str) -> Leftover:
        if self._is_left_out(path):
            why = "rows that the job has left out, which stay until you delete them"
            return Leftover(GarbageKind.LEFT_OUT, self._describe(path), _size(self._tree(path)), why)
        if path == f"{self._id}/{TABLE_VERSIONS}":
            why = "stays: its query reads the same again if it repeats a micro-batch"
            return Leftover(GarbageKind.APPLICATION, self._describe(path), _size(self._tree(path)), why)
        return Leftover(GarbageKind.UNKNOWN, self._describe(path), 0, "not understood, so it stays")

    def _is_left_out(self, path: str) -> bool:
        return path in {f"{self._id}/{name}" for name in LEFT_OUT}

    def _describe(self, path: str) -> str:
        return self._storage.describe(path)

    def _tree(self, path: str) -> list[StoredFile]:
        """Yield all files below a directory."""
        below = (self._tree(f"{path}/{name}") for name in self._directories(path))
        return [*self._list(path), *chain.from_iterable(below)]

    def _list(self, path: str) -> Sequence[StoredFile]:
        found = self._storage.list(path)
        self._refuse_links(file.path for file in found)
        return found

    def _directories(self, path: str) -> Sequence[str]:
        self._refuse_links([path])
        found = self._storage.directories(path)
        self._refuse_links(f"{path}/{name}" for name in found)
        return found

    def _refuse_links(self, paths: Collection[str] | Iterator[str]) -> None:
        for path in paths:
            if self._storage.is_link(path):
                raise FormatError(f"{self._describe(path)} is {FOLLOWED_NOT}")


def _name(file: StoredFile) -> str:
    return file.path.rpartition("/")[2]


def _size(files: Collection[StoredFile]) -> int:
    return sum(file.size for file in files)


def _is_plain(name: str) -> bool:
    """Return whether a file beside an application's tasks is one of Millpond's."""
    return is_claim(name) or is_schema(name) or is_former_name(name)


def _is_late(path: str) -> bool:
    return is_claim(path.rpartition("/")[2]) or f"/{EVOLUTION}/" in path
