"""``History``: all generations of the state of one query, as its evolution records tell them.

Rule of this module: records are files that are written once, under their number, and none is ever changed or deleted::

    <application>/evolution/<plain name of the sink>/<generation, 6 digits>.json
    <application>/evolution/<plain name of the sink>/query-<id>    a note, without content, of each query that has begun

Number 0 is written with the query's first row (``Beginning``). State of releases before that has no records until then;
its claim tells its beginning.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple, Self

from millpond.errors import (
    BegunAlreadyError,
    CheckpointRewoundError,
    ConcurrentJobError,
    ConfigurationError,
    StateConflictError,
    VerbChangedError,
    WrongCheckpointError,
)
from millpond.stores.durability.manifests.claim import claim, claimed_by, keep_out_older_releases
from millpond.stores.durability.manifests.manifest import TASK_ID, Manifest
from millpond.stores.durability.storage.storage import Storage, StoredFile
from millpond.stores.evolution.record import BEGINNING, EvolutionRecord, commits_of
from millpond.stores.evolution.shape import Shape

EVOLUTION: Final = "evolution"
_NAME: Final = re.compile(r"(\d{6})\.json")
_QUERY: Final = re.compile(r"query-([0-9A-Za-z-]+)")
_CLAIMED: Final = re.compile(r"([^/#]+)/(\d{1,9})")
_TASK: Final = re.compile(r"(\d+)_\d+")

_parsed: Final = lru_cache(maxsize=128)(EvolutionRecord.from_json)
"""A record is immutable, and a start reads the records of all of a job's verbs several times."""


class Standing(NamedTuple):
    """The state at which a checkpoint stands.

    Attributes:
        record: the record of the generation of its state.
        manifests: the manifest with which each task goes on, by task id.
    """

    record: EvolutionRecord
    manifests: dict[str, Manifest]


@dataclass(frozen=True)
class History:
    """The generations of one query's state.

    Attributes:
        storage: the place of the durable state.
        application_id: the application.
        sink: the plain name of the query's output.
        claimed: the fingerprint of the topology that has claimed the application; None if none has.
        records: the records that exist, the first one first.
        led_on: whether the first of them is not kept, but made from what the second tells of its origin: state under
            another name, or of a release without records.
        queries: the ids of the queries that are known to have had a part in it.
    """

    storage: Storage
    application_id: str
    sink: str
    claimed: str | None
    records: tuple[EvolutionRecord, ...]
    led_on: bool = False
    queries: frozenset[str] = frozenset()

    @classmethod
    def of(cls, storage: Storage, application_id: str, sink: str) -> Self:
        """Return the history that the storage holds.

        Raises:
            FormatError: a record is damaged, or of a later release.
            DurabilityError: the storage failed.
        """
        directory = _directory(application_id, sink)
        names = sorted(file.path.rpartition("/")[2] for file in storage.list(directory))
        kept = [f"{directory}/{name}" for name in names if _NAME.fullmatch(name)]
        records = [_parsed(storage.read(path).decode(errors="replace")) for path in kept]
        queries = frozenset(note[1] for note in map(_QUERY.fullmatch, names) if note is not None)
        first = records[0].previous if records else None
        if first is not None:
            records.insert(0, EvolutionRecord(first.generation, first.fingerprint, first.shape))
        claimed = claimed_by(storage, application_id)
        return cls(storage, application_id, sink, claimed, tuple(records), first is not None, queries)

    @property
    def newest(self) -> EvolutionRecord | None:
        """The record of the present generation."""
        return self.records[-1] if self.records else None

    def unedited_at(self, batch: int | None) -> EvolutionRecord | None:
        """Return the newest generation that a start, not an edit, had made by a micro-batch; None for the last one."""
        following = None if batch is None else batch + 1
        return next((one for one in reversed(self.records) if one.edit is None and one.applies_to(following)), None)

    @property
    def unerased(self) -> EvolutionRecord | None:
        """The record of the newest generation that no erasure made; an erasure also covers state left behind."""
        made = (record for record in reversed(self.records) if record.edit is None or not record.edit.erases)
        return next(made, None)

    @property
    def was_erased(self) -> bool:
        """True if keys were ever erased from the state."""
        return any(record.edit is not None and record.edit.erases for record in self.records)

    def starts(self, first: int, last: int) -> list[EvolutionRecord]:
        """Return the generations that starts, not edits, have made after a micro-batch of these, both included."""
        made = (one for one in self.records if one.edit is None)
        return [one for one in made if one.batch is not None and first <= one.batch <= last]

    @property
    def next_generation(self) -> int:
        """The number of the generation after the newest."""
        return BEGINNING + 1 if self.newest is None else self.newest.generation + 1

    @property
    def backfill(self) -> str | None:
        """The id of the backfill with which the state began; None if there was none, or none that counts yet."""
        done = (record.backfill for record in self.records if record.generation > BEGINNING)
        return next((id_ for id_ in done if id_ is not None), None)

    @property
    def evolved(self) -> bool:
        """True if the state was ever carried over."""
        return self.newest is not None and self.newest.generation > BEGINNING

    @property
    def partitions(self) -> int | None:
        """The number of tasks of each sub-topology; None if nothing tells it."""
        if self.newest is not None:
            return self.newest.shape.partitions
        claimed = _CLAIMED.fullmatch(self.claimed or "")
        return None if claimed is None else int(claimed[2])

    def begun(
        self,
        fingerprint: str,
        shape: Shape,
        seeded: frozenset[str] = frozenset(),
        *,
        backfill: str | None = None,
        keep: bool = True,
    ) -> "History":
        """Return this history with its beginning, if the query begins now, or began with a release without records.

        Args:
            fingerprint: the fingerprint of the plan that is to run.
            shape: the shape of the plan.
            seeded: the stores that are to begin with seeds. If there are some, the beginning has no stores yet, so that
                the state is carried over from there to ``shape``.
            backfill: the id of an attempt at a backfill, which gives the tasks their first state; None for none. Then,
                too, the beginning has no stores yet.
            keep: whether to keep it in the storage; else nothing is written.

        Raises:
            StateConflictError: another topology claims the application at the same time, or there is state already.
            DurabilityError: the storage failed.
        """
        if self.records:
            return self
        if self.claimed in (None, fingerprint):
            if seeded and self.may_have_tasks():
                raise BegunAlreadyError(
                    f"{self.storage.describe(self.application_id)} holds state of application {self.application_id!r} "
                    f"that began without seeds, so those for {sorted(seeded)} would come too late; take them out"
                )
            first_shape = replace(shape, stores=()) if seeded or backfill is not None else shape
            first = EvolutionRecord(BEGINNING, fingerprint, first_shape, seeded=seeded, backfill=backfill)
            if not keep:
                return replace(self, records=(first,))
            claim(self.storage, self.application_id, fingerprint)
            return replace(self, claimed=fingerprint).keep(first)
        assert self.claimed is not None
        known = _CLAIMED.fullmatch(self.claimed)
        if known is None:
            return self
        same_topology = known[1] == fingerprint.partition("/")[0]
        before = Shape(int(known[2]), shape.stores if same_topology else ())
        return replace(self, records=(EvolutionRecord(BEGINNING, self.claimed, before),))

    def keep(self, record: EvolutionRecord) -> "History":
        """Keep one more generation, which counts from now on, and return the history with it.

        Raises:
            StateConflictError: another process has written that generation at the same time.
            DurabilityError: the storage failed.
        """
        path = record_path(self.application_id, self.sink, record.generation)
        text = record.to_json().encode()
        self.storage.put_once(path, text)
        if self.storage.read(path) != text:
            raise ConcurrentJobError(
                f"{self.storage.describe(path)} was written by another job at the same time; start one job after the "
                "other"
            )
        return replace(self, records=(*self.records, record))

    def check_query(self, query: str) -> None:
        """Refuse a query with micro-batches behind it whose checkpoint holds none of this state.

        Raises:
            StateConflictError: others are known to have had a part in the state, and this one is not.
        """
        if not self.queries or query in self.queries:
            return
        verb = self.job != self.application_id
        named, another = (f"the verb {self.sink!r}", "name") if verb else (f"sink {self.sink!r}", "application_id")
        raise VerbChangedError(
            f"{named} of application {self.job!r} has state of the query {', '.join(sorted(self.queries))} in "
            f"{self.storage.describe(self.application_id)}, and would begin empty in this one, {query}, whose "
            "checkpoint has micro-batches, but none of that state; start it at the checkpoint with the former id in "
            f"its file metadata, or, to have it begin empty here, give it another {another}"
        )

    def note_query(self, query: str) -> None:
        """Note that a query has a part in the state; doing it again is cheap.

        Raises:
            DurabilityError: the storage failed.
        """
        if query not in self.queries:
            self.storage.put_once(f"{_directory(self.application_id, self.sink)}/query-{query}", b"")

    def keep_out_older_releases(self) -> None:
        """Make releases that know no records refuse state that was carried over.

        Raises:
            DurabilityError: the storage failed.
        """
        if self.evolved:
            keep_out_older_releases(self.storage, self.application_id)

    def may_have_tasks(self) -> bool:
        """Return whether the storage has state of tasks of this query.

        If no record tells its tasks, any task may be its own but those of queries that have records.

        Raises:
            FormatError: a record is damaged, or of a later release.
            DurabilityError: the storage failed.
        """
        tasks = map(_TASK.fullmatch, self.storage.directories(self.application_id))
        there = {int(task[1]) for task in tasks if task is not None}
        if self._subtopologies:
            return not there.isdisjoint(self._subtopologies)
        others = (one for one in sinks_of(self.storage, self.application_id) if one != self.sink)
        return not there <= {
            number for sink in others for number in History.of(self.storage, self.application_id, sink)._subtopologies
        }

    def not_in(self, checkpoint: str) -> ConfigurationError:
        """Return the error for a checkpoint that holds nothing of this query, although there is state of it."""
        return WrongCheckpointError(
            f"the checkpoint {checkpoint} holds no state of application {self.application_id!r}, but "
            f"{self.storage.describe(self.application_id)} does; give the checkpointLocation of the query for "
            f"{self.sink!r}, or start anew with another application id. If {self.sink!r} is new and the state is that "
            "of other queries, start these first, so that records tell whose it is"
        )

    @property
    def job(self) -> str:
        """The application of the whole job; for a verb, its owner's."""
        return self.application_id.removesuffix(f".{self.sink}")

    def may_be_in(self, operators: Mapping[int, Collection[Manifest]]) -> bool:
        """Return whether a checkpoint may belong to this query, as far as its manifests tell, by operator.

        Before the query's first row it holds no manifest of its own, but those of other verbs of the job, or none.
        """
        found = [manifest.application_id for manifests in operators.values() for manifest in manifests]
        return bool(operators) and (not found or any(f"{one}.".startswith(f"{self.job}.") for one in found))

    def begins_with(self, found: Collection[Manifest], batch: int | None) -> bool:
        """Return whether the newest generation was made from a checkpoint's manifests, at its micro-batch or before.

        Micro-batches may have come since, but none with work for this query. A verb that has begun with the rows of
        others, under any key, knows them by manifests that were there then and still are.

        Args:
            found: all manifests that the checkpoint holds, of any application.
            batch: its last micro-batch; None if it has none.
        """
        newest = self.newest
        if newest is None or not self.evolved:
            return False
        if newest.batch == batch and newest.origins == commits_of(found):
            return True
        if batch is None:
            return False
        prints, left = self.made_of(newest), dict[str, list[Manifest]]()
        seeded = any(record.seeded for record in self.lineage(newest))
        for one in found:
            if seeded or one.fingerprint in prints:
                left.setdefault(one.application_id, []).append(one)
        known = [found] if found else []
        leads_on = any(newest.leads_on(batch, some) for some in (*known, *left.values()))
        return leads_on and not self.has_gone([], batch, batch)

    def has_gone(
        self,
        held: Collection[Manifest],
        batch: int | None,
        until: int | None,
        beside: Callable[[], Collection["History"]] | None = None,
    ) -> bool:
        """Return whether the query ran in its newest generation, which the checkpoint lacks, while others go on.

        Queries that began there meanwhile knew commits of that generation; or its files went with keys that were erased
        from their state.

        Args:
            held: the manifests of this application in the checkpoint.
            batch: its last micro-batch; None if it has none.
            until: the last micro-batch after which the beginning of another query counts.
            beside: returns the histories of all applications of the job; None to read them.
        """
        newest, own = self.unedited_at(batch), commits_of(held)
        if newest is None or newest.batch is None or until is None or not own <= newest.origins:
            return False
        since = self.records[self.records.index(newest) :]
        if any(manifest.fingerprint in {record.fingerprint for record in since} for manifest in held):
            return False
        every = histories_beside(self.storage, [self]) if beside is None else beside()
        others = (one for one in every if one.application_id != self.application_id)
        starts = ((one, record.origins) for one in others for record in one.starts(newest.batch, until))
        begun = [(one, origins - newest.origins) for one, origins in starts if own <= origins]
        if not begun:
            return False
        made = frozenset(chain.from_iterable(commits_in(self.storage, self.application_id).values()))
        if not made and any(base.files for base in newest.bases.values()):
            return any(one.was_erased for one, _ in begun)
        return any(not made.isdisjoint(origins) for _, origins in begun)

    def made_of(self, record: EvolutionRecord) -> set[str]:
        """Return the fingerprints of all generations before one, under whatever names of its verb, back to the first.

        The fingerprints of verbs end with the verb's name, but for the first ones.
        """
        made = (one.previous for one in self.lineage(record))
        return {before.fingerprint for before in made if before is not None}

    def lineage(self, record: EvolutionRecord) -> Iterator[EvolutionRecord]:
        """Yield a generation and those that it continues, as far as there are records of them, back to the first."""
        prints, history = set[str](), self
        yield record
        while record.previous is not None and record.previous.fingerprint not in prints:
            prints.add(before := record.previous.fingerprint)
            sink = before.partition("@")[2]
            if sink not in ("", history.sink):
                history = History.of(self.storage, f"{self.job}.{sink}", sink)
            found = next((one for one in history.records if one.fingerprint == before), None)
            if found is None:
                return
            yield (record := found)

    def is_led_on_in(self, other: "History") -> bool:
        """Return whether another query has gone on with this one's newest generation, or with state made from it.

        Later erasures cover both.
        """
        if self.unerased is None or other.newest is None or self.application_id == other.application_id:
            return False
        return self.unerased.fingerprint in other.made_of(other.newest)

    def edited_in(self, other: "History") -> bool:
        """Return whether another query, which goes on with this one's state, has edits since that are not undone."""
        own = self.unerased
        if own is None or other.newest is None or self.application_id == other.application_id:
            return False
        edits = 0
        for record in other.lineage(other.newest):
            if record.fingerprint == own.fingerprint:
                return edits > 0
            if record.edit is not None:
                edits += record.edit.can_be_undone - record.edit.undoes
        return False

    def went_on_in(self, other: "History", *, empty: bool = False) -> bool:
        """Return whether the state goes on in another query's: the same verb under another name.

        Args:
            other: the other query's history.
            empty: whether to count it even if there was no state to go on with, as no row had come yet.
        """
        if self.unerased is None or self.application_id == other.application_id:
            return False
        # Beginnings of one shape have one fingerprint. A verb that was beside one that got another name has a later
        # generation than its beginning; and one that has begun by itself has a record of that, or was carried over
        # before its first row, and had nothing to begin with.
        last = self.records[self.records.index(self.unerased) :]
        if not other.led_on or other.records[0].fingerprint not in {record.fingerprint for record in last}:
            return False
        named = other.records[0].fingerprint.endswith(f"@{self.sink}")
        return bool(other.records[1].bases) or (empty and named)

    @property
    def _subtopologies(self) -> set[int]:
        """The numbers of all sub-topologies that are known to have had state."""
        return {store.subtopology for record in self.records for store in record.shape.stores}

    def knows(self, found: Collection[Manifest]) -> bool:
        """Return whether some of these manifests belong to a generation of this query, or to the origin of one."""
        later = [record for record in self.records if record.generation > BEGINNING]
        prints, origins = {one.fingerprint for one in later}, self.origins
        return any(one.fingerprint in prints or one.commit in origins for one in found)

    @property
    def origins(self) -> frozenset[str]:
        """The commits that some generation knows to go on from."""
        return frozenset(commit for record in self.records for commit in record.origins)

    def standing(self, found: Collection[Manifest], batch: int | None) -> Standing:
        """Return where a checkpoint stands.

        Args:
            found: the manifests of this application that it holds.
            batch: its last micro-batch; None if it has none.

        Raises:
            StateConflictError: its manifests are of none of these generations.
            ConfigurationError: two queries of the application share the checkpoint.
        """
        following = 0 if batch is None else batch + 1
        for record in reversed(self.records):
            try:
                return Standing(record, record.tasks(found, following))
            except StateConflictError as error:
                if record.edit is not None and record.edit.erases:
                    raise CheckpointRewoundError(
                        f"keys were erased from the state of application {self.application_id!r}, {self.sink!r}, after "
                        f"micro-batch {record.batch}, and the checkpoint stands before the erasure, or a query has "
                        "gone on from before it, so the erased rows would be missing: start anew, with another "
                        "checkpoint and application id"
                    ) from error
                continue
        raise WrongCheckpointError(
            f"the checkpoint holds state of {sorted({one.fingerprint for one in found})} of application "
            f"{self.application_id!r}, but the generations of {self.sink!r} are "
            f"{[record.fingerprint for record in self.records]}; give the checkpointLocation of this query"
        )


def sinks_of(storage: Storage, application_id: str) -> list[str]:
    """Return the plain names of the sinks whose queries have records.

    Raises:
        DurabilityError: the storage failed.
    """
    return list(storage.directories(f"{application_id}/{EVOLUTION}"))


def applications_beside(storage: Storage, histories: Collection[History]) -> list[str]:
    """Return all applications of the queries' jobs: each job's own, and one of each verb that it has ever had.

    Raises:
        DurabilityError: the storage failed.
    """
    jobs = {history.job for history in histories}
    return [one for one in storage.directories("") if one in jobs or any(one.startswith(f"{job}.") for job in jobs)]


def histories_beside(storage: Storage, histories: Collection[History]) -> list[History]:
    """Return the histories of all these applications.

    Raises:
        FormatError: a record is damaged, or of a later release.
        DurabilityError: the storage failed.
    """
    beside = applications_beside(storage, histories)
    return [History.of(storage, one, sink) for one in beside for sink in sinks_of(storage, one)]


def commits_in(storage: Storage, application_id: str) -> dict[str, frozenset[str]]:
    """Return the commits that have durable files of an application's tasks, by the directory of the lineage.

    Raises:
        DurabilityError: the storage failed.
    """
    tasks = (f"{application_id}/{one}" for one in storage.directories(application_id) if TASK_ID.fullmatch(one))
    places = (f"{task}/{lineage}" for task in tasks for lineage in storage.directories(task))
    return {place: frozenset(map(_commit_of, storage.list(place))) for place in places}


def _commit_of(file: StoredFile) -> str:
    """Return the commit that wrote a durable file, by its name."""
    return file.path.rpartition("/")[2].partition("-")[2].partition(".")[0]


def is_record(name: str) -> bool:
    """Return whether a file of that name among a sink's records is one, or the note of a query."""
    return _NAME.fullmatch(name) is not None or _QUERY.fullmatch(name) is not None


def record_path(application_id: str, sink: str, generation: int) -> str:
    """Return the path of the record of a generation.

    >>> record_path("flights", "counts", 2)
    'flights/evolution/counts/000002.json'
    """
    return f"{_directory(application_id, sink)}/{generation:06d}.json"


def _directory(application_id: str, sink: str) -> str:
    return f"{application_id}/{EVOLUTION}/{sink}"
