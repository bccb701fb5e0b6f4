"""Verbs of an application that have other names than before, are gone, or are new: declarations and advice.

A verb ``v`` of the application ``a`` has its state as the application ``a.v``. A checkpoint holds manifests of verbs,
each in the operator in which it ran.

Rule of this module: it knows names, shapes and manifests, and moves nothing. Each refusal comes with a line to write.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from millpond.errors import ConfigurationError, InvalidEvolutionError, StateConflictError, VerbChangedError
from millpond.stores.durability.manifests.manifest import TASK_ID, Manifest
from millpond.stores.durability.storage.durable_file import sequence_of
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.durability.storage.uris import shown
from millpond.stores.encoding.rows.renames import free_name, leading_back
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import are_alike
from millpond.stores.evolution.record import EvolutionRecord
from millpond.stores.evolution.shape import Shape
from millpond.stores.evolution.verbs.verb_sides import SIDES
from millpond.stores.specs.directory import plain_name


@dataclass(frozen=True)
class VerbOf:
    """A verb of an application.

    Attributes:
        owner: the application's id.
        name: the verb's name.
        before: the name of the verb whose state it goes on with, as long as it has no state of its own; else its own
            name.
    """

    owner: str
    name: str
    before: str

    @property
    def application_id(self) -> str:
        """The application whose state it goes on with."""
        return application_of(self.owner, self.before)


@dataclass(frozen=True)
class EditedAs:
    """A verb that has been started under another name and edited there. Travels to the workers.

    Attributes:
        verb: the verb, under its own name.
        now: the other name.
        record: the record of the generation with the edit.
    """

    verb: VerbOf
    now: str
    record: EvolutionRecord

    def check(self, task_id: str, found: Manifest | None, next_batch: int | None) -> None:
        """Refuse a task that would go on without the edit.

        Args:
            task_id: the task.
            found: the manifest in Spark's state of the verb under its own name.
            next_batch: the number of the micro-batch; None if it has none.

        Raises:
            StateConflictError: the edit is of the state that the checkpoint holds.
        """
        is_of = task_id in self.record.bases if found is None else found.commit in self.record.origins
        if is_of and self.record.applies_to(next_batch):
            line = declaration(None, {self.now: self.verb.name})
            raise is_edited(self.verb.owner, self.verb.name, self.now, [line], None)


@dataclass(frozen=True)
class SaidOfVerbs:
    """The user's declaration of verbs that have changed.

    Attributes:
        renamed: the new names of verbs, by their old ones.
        dropped: the names of verbs that are gone.
        rekeyed: the name of another verb, by the name of the verb that begins with its rows. Either may be a side of a
            join, such as ``"priced.right"``.

    Raises:
        ConfigurationError: it contradicts itself.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: Collection[str] = ()
    rekeyed: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        new = list(self.renamed.values())
        for name in sorted(set(new)):
            if new.count(name) > 1:
                raise InvalidEvolutionError(f"renamed gives two verbs the new name {name!r}: {dict(self.renamed)}")
        for name in sorted(set(self.dropped) & {*self.renamed, *new}):
            raise InvalidEvolutionError(f"the verb {name!r} is both renamed and dropped; decide for one")
        for place, source in self.rekeyed.items():
            verb, old = verb_and_side(place)[0], verb_and_side(source)[0]
            if verb == old:
                raise InvalidEvolutionError(
                    f"rekeyed says that {place!r} begins with the rows of the verb {old!r}, which is itself; give the "
                    "verb that has another key another name"
                )
            if place != verb and verb in self.rekeyed:
                raise InvalidEvolutionError(f"rekeyed names the verb {verb!r} and its side {place!r}; decide for one")
            if verb in (*new, *self.dropped) or old in self.renamed:
                other = verb if verb in (*new, *self.dropped) else old
                raise InvalidEvolutionError(
                    f"rekeyed names the verb {other!r}, which is renamed or dropped as well; decide for one"
                )

    @property
    def gone(self) -> frozenset[str]:
        """The names that verbs had, and no longer have."""
        sources = (verb_and_side(source)[0] for source in self.rekeyed.values())
        return frozenset((*(old for old, new in self.renamed.items() if old != new), *self.dropped, *sources))

    def begins_with(self, name: str) -> dict[str | None, tuple[str, str | None]]:
        """Return the verb whose rows each side of a verb begins with, and the side of that verb; None for all sides."""
        places = ((verb_and_side(place), source) for place, source in self.rekeyed.items())
        return {side: verb_and_side(source) for (verb, side), source in places if verb == name}

    def former(self, name: str) -> list[str]:
        """Return the former names of a verb, the latest first; none if none are declared."""
        by_new = {new: old for old, new in self.renamed.items()}
        found = [name]
        while (old := by_new.get(found[-1])) is not None and old not in found:
            found.append(old)
        return found[1:]

    def former_of_asked(self, name: str) -> list[str]:
        """Return the former names of a verb that is asked for.

        Raises:
            ConfigurationError: it is declared to be gone.
        """
        if name in self.gone:
            circle = leading_back(self.renamed, name)
            if circle:
                raise self._leads_back(name, circle)
            where, what = "rekeyed", f"says that others begin with its rows ({dict(self.rekeyed)})"
            if name in self.renamed:
                where, what = "renamed", f"says that it is {self.renamed[name]!r} now"
            elif name in self.dropped:
                where, what = "dropped", "names it"
            raise InvalidEvolutionError(
                f"the verb {name!r} is asked for, but {where} {what}; take {name!r} out of {where}, or give a new verb "
                "another name, because the old state of this one is still there"
            )
        return self.former(name)

    def _leads_back(self, name: str, circle: Sequence[str]) -> ConfigurationError:
        """Return the error for a verb that is asked for, whose name leads back to itself."""
        once_more = {old: new for old, new in self.renamed.items() if old != name}
        taken = {*self.renamed, *self.renamed.values(), *self.dropped}
        apart = {old: free_name(new, taken) if old in circle else new for old, new in self.renamed.items()}
        return InvalidEvolutionError(
            f"renamed leads from the verb {name!r}, which is asked for, back to it: {dict(self.renamed)}; if it has "
            f"got a former name again, write renamed={once_more}; if verbs exchange names, which each start would do "
            f"again, give them names that none has had, renamed={apart}"
        )

    def now(self, name: str) -> str:
        """Return the present name of a verb."""
        seen = {name}
        while (new := self.renamed.get(name)) is not None and new not in seen:
            seen.add(new)
            name = new
        return name


@dataclass(frozen=True)
class HeldState:
    """The state that a checkpoint holds.

    Attributes:
        location: the checkpoint's location.
        batch: its last micro-batch.
        operators: the manifests of each operator, by its number.
    """

    location: str
    batch: int
    operators: Mapping[int, Collection[Manifest]]

    @property
    def manifests(self) -> list[Manifest]:
        """All manifests."""
        return [manifest for manifests in self.operators.values() for manifest in manifests]

    def of(self, application_id: str) -> list[Manifest]:
        """Return the manifests of an application."""
        return [one for one in self.manifests if one.application_id == application_id]

    def of_verbs(self, owner: str, names: Collection[str]) -> list[Manifest]:
        """Return the manifests of some verbs."""
        return [one for one in self.manifests if verb_in(owner, one.application_id) in names]

    def is_known_to(self, record: EvolutionRecord | None, manifests: Collection[Manifest]) -> bool:
        """Return whether a generation goes on from the checkpoint, with these manifests of others left behind."""
        return not manifests or (record is not None and self.is_led_on_by(record, manifests))

    def is_led_on_by(self, record: EvolutionRecord, manifests: Collection[Manifest]) -> bool:
        """Return whether the checkpoint is in a generation that was carried over, with these manifests left behind."""
        return record.leads_on(self.batch, manifests)


def application_of(owner: str, verb: str) -> str:
    """Return the id of the application that has the state of a verb."""
    return f"{owner}.{verb}"


def verb_and_side(place: str) -> tuple[str, str | None]:
    """Return the verb, and its side, if one is named.

    >>> verb_and_side("priced.right"), verb_and_side("prices")
    (('priced', 'right'), ('prices', None))
    """
    verb, _, side = place.rpartition(".")
    return (verb, side) if verb and side in SIDES else (place, None)


def verb_in(owner: str, application_id: str) -> str | None:
    """Return the name of the verb whose state an application is; None if it is not one of that owner's."""
    prefix = application_of(owner, "")
    return application_id.removeprefix(prefix) if application_id.startswith(prefix) else None


def verbs_in(owner: str, manifests: Collection[Manifest]) -> list[str]:
    """Return the names of an owner's verbs that have some of the manifests, sorted."""
    found = (verb_in(owner, application_id) for application_id in {one.application_id for one in manifests})
    return sorted(name for name in found if name is not None)


def holds_state(storage: Storage, application_id: str) -> bool:
    """Return whether there are durable files of an application's tasks.

    Raises:
        DurabilityError: the storage failed.
    """
    tasks = (f"{application_id}/{name}" for name in storage.directories(application_id) if TASK_ID.fullmatch(name))
    lineages = (f"{task}/{name}" for task in tasks for name in storage.directories(task))
    # A run that has begun in the wrong place has left its pins there.
    return any(sequence_of(file.path.rpartition("/")[2]) is not None for one in lineages for file in storage.list(one))


def alike(storage: Storage, owner: str, name: str, shape: Shape, among: Collection[str]) -> list[str]:
    """Return the verbs that a new one may be under another name, the likeliest first.

    Args:
        storage: the state directory.
        owner: the application.
        name: the new verb's name.
        shape: the shape that its state would have.
        among: the names of the other verbs.

    Raises:
        FormatError: a record is damaged, or of a later release.
        DurabilityError: the storage failed.
    """
    found = []
    for other in among:
        newest = History.of(storage, application_of(owner, other), plain_name(other)).newest
        if newest is not None and are_alike(other, newest.shape, name, shape):
            found.append(other)
    return get_close_matches(name, found, max(1, len(found)), 0)


def went_on(storage: Storage, owner: str, names: Collection[str], *, empty: bool = False) -> dict[str, str]:
    """Return the names under which the states of verbs go on, by the names of the verbs whose state does so.

    Args:
        storage: the state directory.
        owner: the application.
        names: the names of the verbs.
        empty: whether to count verbs that had no state to go on with, too.

    Raises:
        FormatError: a record is damaged, or of a later release.
        DurabilityError: the storage failed.
    """
    histories = {name: History.of(storage, application_of(owner, name), plain_name(name)) for name in names}
    found: dict[str, str] = {}
    for old, own in histories.items():
        for new, other in histories.items():
            if own.went_on_in(other, empty=empty):
                found.setdefault(old, new)
    return found


def edited_as(storage: Storage, verb: VerbOf, asked: Collection[str]) -> tuple[EditedAs, ...]:
    """Return the other names under which a verb has been started and edited, if no names are declared.

    Args:
        storage: the state directory.
        verb: the verb.
        asked: the names of verbs that run beside it.

    Raises:
        FormatError: a record is damaged, or of a later release.
        DurabilityError: the storage failed.
    """
    own = History.of(storage, application_of(verb.owner, verb.name), plain_name(verb.name))
    if own.newest is None:
        return ()
    others = (name for name in verbs_beside(storage, verb.owner) if name not in (verb.name, *asked))
    histories = {name: History.of(storage, application_of(verb.owner, name), plain_name(name)) for name in others}
    return tuple(
        EditedAs(verb, name, one.newest)
        for name, one in histories.items()
        if one.newest is not None and own.edited_in(one)
    )


def verbs_with_state(storage: Storage, owner: str) -> list[str]:
    """Return the names of an owner's verbs that have state, sorted.

    Raises:
        DurabilityError: the storage failed.
    """
    return [name for name in verbs_beside(storage, owner) if holds_state(storage, application_of(owner, name))]


def verbs_beside(storage: Storage, owner: str) -> list[str]:
    """Return the names of an owner's verbs that have a directory, sorted.

    Raises:
        DurabilityError: the storage failed.
    """
    names = (verb_in(owner, application_id) for application_id in storage.directories(""))
    return sorted(name for name in names if name is not None)


def declaration(
    checkpoint: str | Mapping[str, str] | None,
    renamed: Mapping[str, str] | None = None,
    dropped: Collection[str] = (),
    into: str | None = None,
    rekeyed: Mapping[str, str] | None = None,
    converted: Mapping[str, str] | None = None,
) -> str:
    """Return the argument of ``Millpond`` that declares these changes.

    >>> declaration("s3://b/c", {"total": "totals"})
    "evolution=Evolution('s3://b/c', renamed={'total': 'totals'})"
    """
    said = ["checkpoint" if checkpoint is None else repr(checkpoint)]
    said += [f"renamed={dict(renamed)}"] if renamed else []
    said += [f"dropped={sorted(dropped)}"] if dropped else []
    said += [f"rekeyed={dict(rekeyed)}"] if rekeyed else []
    said += [f"converted={dict(converted)}"] if converted else []
    said += [f"into={into!r}"] if into else []
    return f"evolution=Evolution({', '.join(said)})"


def lacks_state(storage: Storage, owner: str, verb: str, checkpoint: str | None = None) -> StateConflictError:
    """Return the error for a verb whose manifests are in a checkpoint, but whose files are not found."""
    where = "the checkpoint" if checkpoint is None else f"the checkpoint {checkpoint}"
    return VerbChangedError(
        f"there is no state of {owner}/{verb} in {shown(storage.uri)}; {where} holds the state of that verb, whose "
        "files are in the state_dir with which it was written (it does not say which); write that one: state_dir=..."
    )


def strangers(held: Collection[Manifest], own: Collection[str], known: Iterable[Collection[str]]) -> list[Manifest]:
    """Return the manifests in an operator that are neither of its applications nor were carried over for them.

    Args:
        held: the manifests of a group of tasks, as Spark's state has them.
        own: the applications that run there.
        known: the commits from which each of them knows to go on.
    """
    others = [one for one in held if one.application_id not in own]
    return [one for one in others if not any(one.commit in commits for commits in known)]


def taken(owner: str, verbs: Collection[str], stranger: Manifest) -> StateConflictError:
    """Return the error for an operator in which other verbs have run than those that are asked for."""
    asked, there = ", ".join(map(repr, sorted(verbs))), verb_in(owner, stranger.application_id)
    if there is None:
        other = stranger.application_id
        ends = [f".{verb}" for verb in sorted(verbs) if other.endswith(f".{verb}")]
        before = repr(other.removesuffix(ends[0])) if ends else None
        line = f"the application_id with which {other!r} begins" if before is None else f"application_id={before}"
        return VerbChangedError(
            f"the checkpoint holds the state of {other!r} where the verb {asked} of application "
            f"{owner!r} is to run; write {line} again, or give this job a new checkpoint"
        )
    only = next(iter(verbs)) if len(verbs) == 1 else None
    renamed = "" if only is None else f"if it is the same verb, write {declaration(None, {there: only})}; "
    return VerbChangedError(
        f"the checkpoint holds the state of the verb {there!r} (task {stranger.task_id!r}) of application {owner!r}, "
        f"but in its place {asked} is asked for; {renamed}if {there!r} is gone, write "
        f"{declaration(None, dropped=[there])}; if it has another place now, write {declaration(None, into='new one')}"
    )


def has_two(owner: str, old: str, new: str, checkpoint: str) -> StateConflictError:
    """Return the error for a verb that is to go on with the state of another one, but has its own."""
    return VerbChangedError(
        f"renamed says that the verb {old!r} of application {owner!r} is {new!r} now, but the checkpoint {checkpoint} "
        f"holds state of both that has not been brought together; take renamed={{{old!r}: {new!r}}} out if {old!r} is "
        "another verb by now, or give the renamed verb a name that has no state"
    )


def has_gone_on(owner: str, old: str, now: str, new: str, checkpoint: str) -> StateConflictError:
    """Return the error for a verb that is to go on with the state of another one, which goes on under a third name."""
    return VerbChangedError(
        f"renamed says that the verb {old!r} of application {owner!r} is {new!r} now, but at the checkpoint "
        f"{checkpoint} it has gone on as {now!r}, with rows that its state as {old!r} lacks; write "
        f"{declaration(checkpoint, {now: new})}"
    )


def is_edited(owner: str, old: str, now: str, lines: Sequence[str], checkpoint: str | None) -> StateConflictError:
    """Return the error for a verb that is to go on with state that was edited under another name since.

    Args:
        owner: the application.
        old: the verb with whose state it would go on.
        now: the other name, under which the state was edited.
        lines: the lines to write to go on with the edit, each for a verb that may be the right one.
        checkpoint: the query's checkpoint; None if nothing is said of it.
    """
    where = "its checkpoint" if checkpoint is None else f"the checkpoint {checkpoint}"
    written = " or, if it was another verb, ".join(lines)
    return VerbChangedError(
        f"at {where} the verb {old!r} of application {owner!r} has been started as {now!r} and edited as {now!r}, so "
        f"its state as {old!r} lacks the edit; to go on with that, write {written}; or take it back: millpond state "
        "undo"
    )


def has_no_place(
    owner: str, name: str, there: Collection[str], alike: Sequence[str], checkpoint: str
) -> StateConflictError:
    """Return the error for a new verb in a checkpoint whose operators have all run other verbs.

    Args:
        owner: the application.
        name: the verb.
        there: the verbs that have state in the checkpoint.
        alike: the verbs among them that it may be under another name, the likeliest first.
        checkpoint: the checkpoint's location.
    """
    others = sorted(set(there))
    ways = [f"if it was {one!r}, write {declaration(checkpoint, {one: name})}" for one in alike[:1]]
    if others and not alike:
        ways.append(f"if it was one of these, write {declaration(checkpoint, {'its old name': name})}")
    for gone in alike[:1] or others:
        ways.append(f"if it stands where {gone!r} stood, write {declaration(checkpoint, dropped=[gone])}")
    ways.append(f"if it is one more, write {declaration(checkpoint, into='a new checkpoint')}")
    return VerbChangedError(
        f"the checkpoint {checkpoint} holds the state of {', '.join(map(repr, others)) or 'no verb'} of application "
        f"{owner!r}, and none of the verb {name!r}, which is asked for; {'; '.join(ways)}"
    )
