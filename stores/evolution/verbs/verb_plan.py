"""The plan for the verbs of a query: the state of each in its checkpoint, the verb that is asked for, and the advice.

Rule of this module: it reads the records of a state directory, compares, and starts, changes and writes nothing.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.schema_log import Beside, kept_schemas
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.durability.storage.uris import shown
from millpond.stores.evolution.current_manifests import without_left_behind
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import told_difference
from millpond.stores.evolution.shape import Shape
from millpond.stores.evolution.verbs.declarations import (
    HeldState,
    SaidOfVerbs,
    alike,
    application_of,
    declaration,
    holds_state,
    verbs_in,
    verbs_with_state,
    went_on,
)
from millpond.stores.evolution.verbs.verb_kinds import tables_of
from millpond.stores.evolution.verbs.verb_sides import INPUT, SIDES, sides_of
from millpond.stores.specs.directory import plain_name

NEW_PLACE: Final = "<a new checkpoint>"
"""A placeholder for a place that the user has to choose."""

WRITTEN_WITH: Final = "<the one that the checkpoint was written with>"
"""A placeholder for a place that the user has to find: no manifest names its state directory."""

_NOTHING: Final = "-"
_TITLES: Final = ("verb", "there", "asked for", "change", "line to write")


class VerbChange(StrEnum):
    """The change of a verb."""

    GOES_ON = "goes on"
    CARRIED = "goes on, carried over as declared"
    RESHAPED = "has another shape"
    REKEYED = "begins with the rows of others, as declared"
    RENAMED = "has another name, it seems"
    OTHER_KEY = "has another key, it seems"
    NEW = "is new, and begins empty"
    ELSEWHERE = "has its state with another checkpoint"
    ELSEWHERE_IT_SEEMS = "has its state with another checkpoint, under another name, it seems"
    GONE = "is gone"
    DROPPED = "is gone, as declared"
    MISSING = "its state is not in the state_dir"


@dataclass(frozen=True)
class VerbRow:
    """The change of one verb.

    Attributes:
        verb: the name of the verb.
        there: the state in the checkpoint of it, or of the verb that it was; empty for none.
        asked: the verb that is asked for; empty for none.
        change: the change.
        line: the text to write; empty if nothing has to be declared.
    """

    verb: str
    there: str
    asked: str
    change: VerbChange
    line: str


@dataclass(frozen=True)
class EvolutionPlan:
    """The changes of the verbs of a query if it is started as it is. ``str`` makes a table of it.

    Attributes:
        checkpoint: the query's ``checkpointLocation``.
        state_dir: the directory in which its state is looked for.
        batch: the last micro-batch that was committed; None if there is none.
        rows: a verb each: those that are asked for first, in the order of their making.
        line: all that has to be written, as one argument of ``Millpond``; empty if nothing has to be.
    """

    checkpoint: str
    state_dir: str
    batch: int | None
    rows: tuple[VerbRow, ...]
    line: str

    def __str__(self) -> str:
        stands = "has no micro-batch yet" if self.batch is None else f"stands after micro-batch {self.batch}"
        texts = [_TITLES, *((row.verb, row.there, row.asked, row.change.value, row.line) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        table = [
            "  ".join((text or _NOTHING).ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
            for line in texts
        ]
        head = f"the checkpoint {self.checkpoint} {stands}; the state_dir is {self.state_dir}"
        return "\n".join([head, *table, f"write {self.line}" if self.line else "nothing has to be written"])


@dataclass(frozen=True)
class AskedVerb:
    """A verb that is asked for.

    Attributes:
        shape: the shape that its state would have.
        keys: the columns of its key.
        operators: the number of its operators; 0 if it runs in another verb's.
    """

    shape: Shape
    keys: Collection[str]
    operators: int

    def __str__(self) -> str:
        return _told(self.shape, self.keys)


@dataclass(frozen=True)
class Planning:
    """The comparison of the verbs that are asked for with those in the checkpoint.

    Attributes:
        storage: the state directory.
        owner: the application's id.
        held: the state that the checkpoint holds; None before its first micro-batch.
        asked: the verbs that are asked for, by name.
        said: the declaration of verbs.
        checkpoint: the query's checkpoint.
        declared: the verbs for which there is an evolution at this checkpoint, so that other shapes and names are
            carried over.
        places: the checkpoints that are declared: one for all verbs, or by verb; None for none.
        into: the declared checkpoint at which the query is to go on; None if it stays.
    """

    storage: Storage
    owner: str
    held: HeldState | None
    asked: Mapping[str, AskedVerb]
    said: SaidOfVerbs
    checkpoint: str
    declared: Collection[str]
    places: str | Mapping[str, str] | None
    into: str | None

    def plan(self) -> EvolutionPlan:
        """Return the change of each verb.

        Raises:
            FormatError: a record is damaged, or of a later release.
            DurabilityError: the state directory cannot be read.
        """
        current = self._current()
        there = {name: self._shape(name) for name in verbs_in(self.owner, _all(current))}
        guesses = self._guesses(there)
        begun = {one for name in self.asked for one in self._begins_with(name)}
        left = [name for name in there if self.said.now(name) not in self.asked and name not in guesses.values()]
        rows = [self._row(name, there, guesses) for name in self.asked]
        gone = [name for name in left if name not in begun]
        for name in gone:
            change = VerbChange.DROPPED if name in self.said.dropped else VerbChange.GONE
            line = "" if change is VerbChange.DROPPED else f"dropped={[name]}"
            rows.append(VerbRow(name, self._there(name, there), "", change, line))
        into = self.into or (NEW_PLACE if self._moves(current, rows, left) else None)
        others = {row.verb: guesses[row.verb] for row in rows if row.change is VerbChange.OTHER_KEY}
        renamed = {**self.said.renamed, **{old: new for new, old in guesses.items() if new not in others}}
        rekeyed = {**self.said.rekeyed, **others}
        dropped = {*self.said.dropped, *gone}
        says_more = any(row.line for row in rows if row.change is not VerbChange.MISSING) or into != self.into
        line = declaration(self._places(rows), renamed, dropped, into, rekeyed) if says_more else ""
        batch = None if self.held is None else self.held.batch
        return EvolutionPlan(self.checkpoint, shown(self.storage.uri), batch, tuple(rows), line)

    def _row(self, name: str, there: Mapping[str, Shape | None], guesses: Mapping[str, str]) -> VerbRow:
        asked, begins = self.asked[name], self._begins_with(name)
        if name not in there and begins:
            found = "; ".join(self._there(one, {one: self._shape(one)}) for one in begins)
            return VerbRow(name, found, str(asked), VerbChange.REKEYED, "")
        before = next((one for one in (name, *self._former(name)) if one in there), guesses.get(name))
        if before is None:
            return VerbRow(name, "", str(asked), self._absent(name, there), "")
        found, shape = self._there(before, there), there[before]
        if not holds_state(self.storage, application_of(self.owner, before)) and self._has_files(before):
            return VerbRow(name, found, str(asked), VerbChange.MISSING, f"state_dir={WRITTEN_WITH!r}")
        if name in guesses:
            renamed = {before: name}
            keys = list(keys_in(self.storage, application_of(self.owner, before), shape))
            if keys and keys != list(asked.keys) and sides_of(asked.shape):
                rekeyed = {name: before}
                return VerbRow(name, found, str(asked), VerbChange.OTHER_KEY, f"rekeyed={rekeyed}")
            return VerbRow(name, found, str(asked), VerbChange.RENAMED, f"renamed={renamed}")
        differs = shape is not None and before == name and told_difference(shape, asked.shape)
        if before != name or (differs and name in self.declared):
            return VerbRow(name, found, str(asked), VerbChange.CARRIED, "")
        line = declaration(self.checkpoint) if differs else ""
        return VerbRow(name, found, str(asked), VerbChange.RESHAPED if differs else VerbChange.GOES_ON, line)

    def _begins_with(self, name: str) -> list[str]:
        """Return the verbs in the checkpoint whose rows a verb is declared to begin with, whether it has or not."""
        known = () if self.held is None else verbs_in(self.owner, self.held.manifests)
        said = dict.fromkeys(verb for verb, _ in self.said.begins_with(name).values())
        return [verb for verb in said if verb in known]

    def _current(self) -> dict[int, list[Manifest]]:
        """Return the manifests of verbs that were not left behind, by operator."""
        if self.held is None:
            return {}
        current = without_left_behind(self.storage, self.held.manifests, self.held.batch)
        return {
            number: [one for one in manifests if one in current] for number, manifests in self.held.operators.items()
        }

    def _shape(self, name: str) -> Shape | None:
        """Return the shape of a verb's state by its newest record; None if there is none."""
        newest = History.of(self.storage, application_of(self.owner, name), plain_name(name)).newest
        return None if newest is None else newest.shape

    def _guesses(self, there: Mapping[str, Shape | None]) -> dict[str, str]:
        """Return the likely former names of verbs that are asked for and are not there, by their names."""
        gone = {old for old in self.said.gone if not self.said.renamed.get(old) or self.said.now(old) in self.declared}
        open_ones = [name for name in there if name not in self.asked and name not in gone]
        found: dict[str, str] = {}
        for same_key in (True, False):
            for name, asked in self.asked.items():
                known = name in there or name in found or any(one in there for one in self._former(name))
                if known or self._begins_with(name) or self._stands_elsewhere(name):
                    continue
                among = [one for one in open_ones if one not in found.values()]
                if same_key:
                    among = [one for one in among if self._has_key(one, asked)]
                likeliest = alike(self.storage, self.owner, name, asked.shape, among)
                if likeliest:
                    found[name] = likeliest[0]
        return found

    def _former(self, name: str) -> list[str]:
        """Return the former names of a verb, if they are declared for the query at this checkpoint."""
        return self.said.former(name) if name in self.declared else []

    def _stands_elsewhere(self, name: str) -> bool:
        """Return whether a verb's query is declared to have another checkpoint than this one."""
        return isinstance(self.places, Mapping) and name in self.places and name not in self.declared

    def _has_key(self, name: str, asked: AskedVerb) -> bool:
        return list(keys_in(self.storage, application_of(self.owner, name), self._shape(name))) == list(asked.keys)

    def _absent(self, name: str, there: Collection[str]) -> VerbChange:
        """Return the change of a verb of which the checkpoint holds nothing: it is new, or another query's."""
        names = [one for one in (name, *self.said.former(name)) if one not in there]
        if any(holds_state(self.storage, application_of(self.owner, one)) for one in names):
            return VerbChange.ELSEWHERE
        asked, known = self.asked[name], verbs_with_state(self.storage, self.owner)
        gone_on = went_on(self.storage, self.owner, known)
        others = [
            one
            for one in known
            if not (one in there or one in self.asked or one in self.said.gone or one in gone_on)
            and (self.held is None or not self.held.of(application_of(self.owner, one)))
            and self._has_key(one, asked)
        ]
        found = alike(self.storage, self.owner, name, asked.shape, others)
        return VerbChange.ELSEWHERE_IT_SEEMS if found else VerbChange.NEW

    def _places(self, rows: Collection[VerbRow]) -> str | dict[str, str]:
        """Return the checkpoint, or if verbs of other queries are asked for as well, the known ones, by verb."""
        elsewhere = VerbChange.ELSEWHERE, VerbChange.ELSEWHERE_IT_SEEMS
        others = [row.verb for row in rows if row.change in elsewhere]
        here = {row.verb: self.checkpoint for row in rows if row.asked and row.verb not in others}
        if isinstance(self.places, Mapping):
            return {**self.places, **here}
        if not others:
            return self.checkpoint
        known = {} if self.places in (None, self.checkpoint) else dict.fromkeys(others, str(self.places))
        return {**known, **here}

    def _has_files(self, name: str) -> bool:
        held = [] if self.held is None else self.held.of(application_of(self.owner, name))
        return any(manifest.files for manifest in held)

    def _there(self, name: str, there: Mapping[str, Shape | None]) -> str:
        shape = there[name]
        if shape is None:
            return f"{name}: state that no record tells of"
        return f"{name}: {_told(shape, keys_in(self.storage, application_of(self.owner, name), shape))}"

    def _moves(self, current: Mapping[int, Collection[Manifest]], rows: Collection[VerbRow], gone: list[str]) -> bool:
        """Return whether there are more or fewer operators than before, as far as the checkpoint tells."""
        if not current:
            return False
        begin = VerbChange.NEW, VerbChange.REKEYED
        new = sum(self.asked[row.verb].operators for row in rows if row.change in begin)
        vacant = sum(not manifests for manifests in current.values())
        left = sum(
            bool(manifests) and all(name in gone for name in verbs_in(self.owner, manifests))
            for manifests in current.values()
        )
        return not left <= new <= left + vacant


def keys_in(storage: Storage, application_id: str, shape: Shape | None) -> Iterator[str]:
    """Yield the columns of the key of the first of a verb's inputs that has any, as its state has them."""
    for place in (INPUT, *SIDES, *(() if shape is None else tables_of(shape))):
        kept = kept_schemas(storage, application_id, Beside.KEY.place(place))
        if kept is not None:
            yield from kept.current.names
            return


def _told(shape: Shape, keys: Collection[str] | Iterator[str]) -> str:
    stores = ", ".join(store.name for store in shape.stores)
    return f"{stores} by {', '.join(keys) or 'no column'}, {shape.partitions} partitions"


def _all(operators: Mapping[int, Collection[Manifest]]) -> list[Manifest]:
    return [manifest for manifests in operators.values() for manifest in manifests]
