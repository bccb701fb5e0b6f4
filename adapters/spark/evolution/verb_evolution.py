"""Verbs that are renamed, dropped or new in a checkpoint, and the generations of state with which they go on.

Spark knows operators by their numbers, so a verb may find the state of another one in its place. Where the user says
that verbs have other names, or are gone, each verb of the query gets a generation that knows all that the checkpoint
holds, and begins with its own state wherever that lies.

Rule of this module: it decides for one verb, before the query starts, and refuses what the checkpoint and what is
declared leave open.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from millpond.adapters.spark.evolution.rekeyed import NewVerb, Rekeyed
from millpond.errors import CallChangedError, RekeyedRowsError
from millpond.processors.distribution.plan import Plan
from millpond.processors.verbs.aggregate import STORE
from millpond.processors.verbs.rekeying.carriages import CARRIAGES
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.schema_log import copy_schemas
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.current_manifests import without_left_behind
from millpond.stores.evolution.evolving import Committed, RunUnits, Target, begin_with, evolve
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import called_after
from millpond.stores.evolution.record import BEGINNING, EvolutionRecord, commits_of
from millpond.stores.evolution.seeding import Filling
from millpond.stores.evolution.shape import Shape
from millpond.stores.evolution.verbs.declarations import (
    HeldState,
    SaidOfVerbs,
    VerbOf,
    alike,
    application_of,
    declaration,
    has_gone_on,
    has_no_place,
    has_two,
    holds_state,
    is_edited,
    lacks_state,
    verb_and_side,
    verb_in,
    verbs_beside,
    verbs_in,
    went_on,
)
from millpond.stores.evolution.verbs.verb_kinds import check_kind
from millpond.stores.specs.directory import plain_name


class Committing(Protocol):
    """A checkpoint, as far as an evolution looks at it: its commits."""

    @property
    def location(self) -> str:
        """The query's ``checkpointLocation``."""

    def last(self) -> int | None:
        """Return the last micro-batch; None if there was none yet, or if there is no checkpoint."""

    def held(self) -> tuple[int | None, Mapping[int, Collection[Manifest]]]:
        """Return the last micro-batch, and the manifests that there are after it, by the number of the operator."""


@dataclass(frozen=True)
class VerbEvolution:
    """The evolution of one verb.

    Attributes:
        verb: the verb.
        history: the history of its own state.
        plan: what is to run.
        target: what the state is to become, with nothing said of its stores' names.
        said: what the user says of verbs.
        asked: the names of the verbs that were asked for so far.
        inputs: its inputs, if it may begin with rows of others; None if they are unknown.
        into: whether the query goes on at another checkpoint.
    """

    verb: VerbOf
    history: History
    plan: Plan
    target: Target
    said: SaidOfVerbs
    asked: Collection[str]
    into: bool
    inputs: NewVerb | None = None

    def generation(self, checkpoint: Committing, run: RunUnits) -> EvolutionRecord | None:
        """Return the generation with which the verb goes on; None if what other verbs are called has no part in it.

        Args:
            checkpoint: where the query stands.
            run: runs units of work.

        Raises:
            StateConflictError: the state directory lacks the state, or what is declared does not lead to this verb.
            ConfigurationError: the checkpoint holds nothing of the job, although there is state of the verb.
            DurabilityError: the state could not be read or written.
        """
        newest = self.history.newest
        edited = self._edited(self.history)
        goes_on = newest is not None and holds_state(self._storage, self.history.application_id)
        if goes_on and not (self.said.gone or edited):
            return None
        batch, operators = checkpoint.held()
        if batch is None:
            return None
        held, own = HeldState(checkpoint.location, batch, operators), self.history.application_id
        current = without_left_behind(self._storage, held.manifests, batch, starting=True)
        former = self.said.former(self.verb.name)
        mine = [one for one in current if one.application_id == own]
        wanted = self.said.begins_with(self.verb.name)
        if wanted and not self._has_begun(mine, held):
            return self._rekeyed(wanted, mine, held, checkpoint, run)
        before = self._before(former, held)
        theirs = held.of_verbs(self.verb.owner, [before])
        known = held.of_verbs(self.verb.owner, [self.verb.name, *former])
        if before != self.verb.name and (
            before in self._elsewhere(edited, known, held) or self._took_over(before, mine, held)
        ):
            return self._carried(before, theirs, held, checkpoint, run)
        if before != self.verb.name and (theirs or not mine) and not self._goes_on(self.verb.name, former, held):
            if mine:
                raise has_two(self.verb.owner, before, self.verb.name, held.location)
            others = [name for name in verbs_in(self.verb.owner, current) if name not in (before, self.verb.name)]
            now = went_on(self._storage, self.verb.owner, [before, *others]).get(before)
            if now is not None:
                raise has_gone_on(self.verb.owner, before, now, self.verb.name, held.location)
            return self._carried(before, theirs, held, checkpoint, run)
        self._check_edits(self.verb.name, edited, known, held)
        self._check_state(self.verb.name, mine, held)
        begun = newest is not None and newest.generation > BEGINNING
        if not held.is_known_to(newest, held.of_verbs(self.verb.owner, self.said.gone)):
            committed = Committed(batch, mine, checkpoint.last, commits_of(held.manifests))
            history = self.history.begun(self.target.fingerprint, self.target.shape)
            target = self._called_after(former, history.standing(mine, batch).record.shape)
            return evolve(history, committed, target, CARRIAGES, run, anew=True, seeds=self._filling)
        if not (begun or mine or holds_state(self._storage, own)):
            self._check_place(held)
        return None

    @property
    def _storage(self) -> Storage:
        return self.history.storage

    @property
    def _filling(self) -> Filling | None:
        return None if self.inputs is None else self.inputs.filling

    def _before(self, former: Sequence[str], held: HeldState) -> str:
        """Return the name of the verb's state: the latest one under which it has run, or has begun at this place.

        If there is none, the checkpoint stands before its first row.
        """
        for place, name in enumerate(former):
            if held.of_verbs(self.verb.owner, [name]) or self._goes_on(name, former[place + 1 :], held):
                return name
        if self.verb.before != self.verb.name and not self.history.may_be_in(held.operators):
            raise History.of(self._storage, self.verb.application_id, self.verb.before).not_in(held.location)
        return self.verb.before

    def _goes_on(self, name: str, former: Collection[str], held: HeldState) -> bool:
        """Return whether a verb has begun, at the checkpoint's place or before, with the state of its former names."""
        records = History.of(self._storage, application_of(self.verb.owner, name), plain_name(name)).records
        theirs = held.of_verbs(self.verb.owner, former)
        return any(record.previous is not None and held.is_led_on_by(record, theirs) for record in records)

    def _took_over(self, before: str, mine: Collection[Manifest], held: HeldState) -> bool:
        """Return whether a verb that has taken over this name began, at the checkpoint's place, with this one's state.

        There may be edits under the name that it had between.
        """
        source = History.of(self._storage, application_of(self.verb.owner, before), plain_name(before))
        if source.newest is None or not mine or not held.is_led_on_by(source.newest, mine):
            return False
        return not source.is_led_on_in(self.history)

    def _carried(
        self, before: str, manifests: Collection[Manifest], held: HeldState, checkpoint: Committing, run: RunUnits
    ) -> EvolutionRecord:
        """Return the generation that is made of the state of the verb under its former name."""
        application_id = application_of(self.verb.owner, before)
        self._check_state(before, manifests, held)
        source = History.of(self._storage, application_id, plain_name(before))
        self._check_edits(before, self._edited(source), manifests, held)
        source = source.begun(self.target.fingerprint, self.target.shape, keep=False)
        known = Shape(1, ()) if source.newest is None else source.newest.shape
        check_kind(before, known, self.verb.name, self.target.shape)
        target = self._called_after([before], known)
        committed = Committed(held.batch, manifests, checkpoint.last, commits_of(held.manifests))
        copy_schemas(self._storage, application_id, self.history.application_id)
        return evolve(self.history, committed, target, CARRIAGES, run, anew=True, seeds=self._filling, source=source)

    def _called_after(self, names: Collection[str], before: Shape) -> Target:
        """Return the target, with the new names of the stores that a state has by one of these names of the verb."""
        after = self.target.shape
        renamed = {old: new for name in names for old, new in called_after(before, after, name, self.verb.name).items()}
        return self.target._replace(declared=replace(self.target.declared, renamed=renamed))

    def _edited(self, source: History) -> list[History]:
        """Return the other verbs that have begun with the state of a history and were edited since.

        Those that are said to be others, or gone, are not among them, nor those with whose state another one goes on.
        """
        owner, storage, said = self.verb.owner, self._storage, self.said
        mine, names = {self.verb.name, *said.former(self.verb.name)}, set[str]()
        for name in verbs_beside(storage, owner):
            if name not in said.dropped:
                chain = {name, *said.former(name), said.now(name)}
                names |= set() if len(chain) > 1 and mine.isdisjoint(chain) else {name}
        histories = (History.of(storage, application_of(owner, name), plain_name(name)) for name in sorted(names))
        found = [one for one in histories if source.edited_in(one)]
        return [one for one in found if not any(one.is_led_on_in(other) for other in found)]

    def _elsewhere(
        self, edited: Collection[History], manifests: Collection[Manifest], held: HeldState
    ) -> dict[str | None, History]:
        """Return the edited histories that begin where the checkpoint stands, from these manifests, by verb."""
        begun = (one for one in edited if one.newest is not None and held.is_led_on_by(one.newest, manifests))
        return {verb_in(self.verb.owner, one.application_id): one for one in begun}

    def _check_edits(
        self, before: str, edited: Collection[History], manifests: Collection[Manifest], held: HeldState
    ) -> None:
        """Refuse to go on with the state of a verb that lacks such edits."""
        owner = self.verb.owner
        for now, other in self._elsewhere(edited, manifests, held).items():
            assert now is not None
            beside = (name for name in verbs_in(owner, held.manifests) if name not in (before, self.verb.name))
            histories = {
                name: History.of(self._storage, application_of(owner, name), plain_name(name)) for name in beside
            }
            twins = [name for name, one in histories.items() if one.edited_in(other)]
            lines = [declaration(held.location, {now: name}) for name in (self.verb.name, *twins)]
            raise is_edited(owner, before, now, lines, held.location)

    def _has_begun(self, mine: Collection[Manifest], held: HeldState) -> bool:
        """Return whether it has begun with the rows of others, and goes on from there."""
        newest = self.history.newest
        theirs = held.of_verbs(self.verb.owner, self.said.gone)
        return newest is not None and _began_with_rows(newest) and (bool(mine) or held.is_known_to(newest, theirs))

    def _rekeyed(
        self,
        wanted: Mapping[str | None, tuple[str, str | None]],
        mine: Collection[Manifest],
        held: HeldState,
        checkpoint: Committing,
        run: RunUnits,
    ) -> EvolutionRecord:
        """Return the generation that is made of the rows that others have kept."""
        newest = self.history.newest
        if mine or (newest is not None and newest.generation > BEGINNING and not _began_with_rows(newest)):
            raise RekeyedRowsError(
                f"rekeyed says that the verb {self.verb.name!r} of application {self.verb.owner!r} begins with the "
                f"rows of {', '.join(repr(verb) for verb, _ in wanted.values())}, but it has begun without them; give "
                "it another name, under which it begins anew, and drop this one"
            )
        for verb, _ in wanted.values():
            theirs = held.of_verbs(self.verb.owner, [verb])
            source = History.of(self._storage, application_of(self.verb.owner, verb), plain_name(verb))
            if not (theirs or source.begins_with(held.manifests, held.batch)):
                there = verbs_in(self.verb.owner, held.manifests)
                raise RekeyedRowsError(
                    f"rekeyed names the verb {verb!r}, of which the checkpoint {held.location} holds no state, only "
                    f"that of {', '.join(map(repr, there)) or 'no verb'}; name the verb as it was, or take it out"
                )
            self._check_state(verb, theirs, held)
            for now in self._elsewhere(self._edited(source), theirs, held):
                assert now is not None
                rekeyed = {place: _renamed(one, verb, now) for place, one in self.said.rekeyed.items()}
                line = declaration(held.location, rekeyed=rekeyed)
                raise is_edited(self.verb.owner, verb, now, [line], held.location)
        assert self.inputs is not None
        made = Rekeyed(self._storage, self.verb, self.plan, self.target, self.inputs, wanted, held)
        committed = Committed(held.batch, mine, checkpoint.last, commits_of(held.manifests))
        return begin_with(self.history, committed, self.target, partial(made.bases, run))

    def _check_state(self, verb: str, manifests: Collection[Manifest], held: HeldState) -> None:
        """Refuse a checkpoint whose state is not in this state directory."""
        has_files = any(manifest.files for manifest in manifests)
        if has_files and not holds_state(self._storage, application_of(self.verb.owner, verb)):
            raise lacks_state(self._storage, self.verb.owner, verb, held.location)

    def _check_place(self, held: HeldState) -> None:
        """Refuse a verb that is new where each operator of the checkpoint has run others."""
        taken = bool(held.operators) and all(held.operators.values())
        if self.plan.behind or self.into or not taken:
            return
        current = without_left_behind(self._storage, held.manifests, held.batch)
        there = [name for name in verbs_in(self.verb.owner, current) if name not in self.asked]
        likeliest = alike(self._storage, self.verb.owner, self.verb.name, self.target.shape, there)
        raise has_no_place(self.verb.owner, self.verb.name, there, likeliest, held.location)


def _renamed(source: str, verb: str, now: str) -> str:
    """Return ``source``, a verb or a side of it, with the verb's name of now in place of an earlier one."""
    return now + source.removeprefix(verb) if verb_and_side(source)[0] == verb else source


def _began_with_rows(record: EvolutionRecord) -> bool:
    """Return whether stores of a generation began with the rows of others, or go on from there."""
    return not record.seeded.isdisjoint(store.name for store in record.shape.stores)


def check_feed_state(verb: str, before: Shape | None, *, feed: bool) -> None:
    """Refuse to go on with a state of changes that count as rows where they are changes of rows.

    Args:
        verb: the verb's name.
        before: the shape of the state that there is; None if there is none.
        feed: whether its rows are a change feed.

    Raises:
        StateConflictError: so it would.
    """
    if feed and before is not None and before.named(STORE):
        raise CallChangedError(
            f"the verb {verb!r} reads a change feed, and its state counts each change as a row; to aggregate the rows "
            "that the feed describes, give the verb another name, drop the old one, and go on at another checkpoint: "
            f"evolution=Evolution(checkpoint, into=new, dropped=[{verb!r}]). To go on counting changes, drop the "
            "feed's operation before: .drop('op')"
        )
