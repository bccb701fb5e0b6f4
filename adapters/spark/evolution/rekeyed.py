"""The first rows of a verb that has another key, or is of another kind: found in the state of earlier verbs.

Rule of this module: it finds what a user declares, refuses what does not fit or would be lost, and says who runs the
work; what the rows become is up to ``millpond.processors.verbs.rekeying``.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from millpond.errors import AmbiguousError, ConfigurationError, RekeyedRowsError
from millpond.processors.distribution.plan import Plan
from millpond.processors.verbs.rekeying.kept_rows import KeptRows
from millpond.processors.verbs.rekeying.rekeying import BACKFILL, Beginning, NewInput, Rekeying
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.schema_log import keep_schemas
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.evolution.evolving import RunUnits, Target
from millpond.stores.evolution.history import History
from millpond.stores.evolution.seeding import Filling
from millpond.stores.evolution.verbs.declarations import HeldState, VerbOf, application_of
from millpond.stores.evolution.verbs.verb_sides import INPUT, Kept, KeptSide, placed, sides_of
from millpond.stores.specs.directory import plain_name

_log = logging.getLogger(__name__)

_NONE: Final = (
    "keeps no rows that others can begin with: aggregate, top_n, deduplicate, over, apply and a join by foreign key "
    "keep what they have made of them, and multi_join keeps its tables for itself"
)


@dataclass(frozen=True)
class NewVerb:
    """A verb that may begin with rows of others.

    Attributes:
        inputs: by role, those of packed rows.
        follows_time: whether what it does depends on how far its inputs have come in time.
        schemas: of what it keeps, by place.
        filling: what its state gets once it is carried over; None for nothing.
    """

    inputs: Mapping[str, NewInput]
    follows_time: bool
    schemas: Mapping[str, Schemas]
    filling: Filling | None = None

    @property
    def fills(self) -> bool:
        """True if the state gets something now, and so is carried over, whatever its shape."""
        return self.filling is not None and bool(self.filling.new)


@dataclass(frozen=True)
class Rekeyed:
    """The rows that a verb begins with.

    Attributes:
        storage: the state directory.
        verb: the verb.
        plan: what is to run.
        target: what its state is.
        inputs: its inputs.
        wanted: the verb whose rows each side begins with, and which side of that; None for all sides.
        held: what the checkpoint holds.
    """

    storage: Storage
    verb: VerbOf
    plan: Plan
    target: Target
    inputs: NewVerb
    wanted: Mapping[str | None, tuple[str, str | None]]
    held: HeldState

    def bases(self, run: RunUnits, fingerprint: str) -> dict[str, Manifest]:
        """Write the state that the tasks begin with, and its rows' schemas; return the manifests by task id.

        Args:
            run: runs units of work.
            fingerprint: what new manifests call their topology.

        Raises:
            ConfigurationError: what is declared names no side of a verb.
            StateConflictError: rows are none of the new verb's, or some would be lacking, which is not accepted.
            MissingFileError, CorruptFileError: a file of the state is gone or damaged.
            DurabilityError: the storage failed.
        """
        name, beginnings = self.verb.name, self._beginnings()
        for one in beginnings.values():
            one.check(name)
        lacking = {role: list(one.lacking()) for role, one in beginnings.items()}
        self._check_lacking(lacking)
        work = Rekeying(
            self.storage, self.plan, beginnings, self.inputs.follows_time, self.verb.application_id, fingerprint
        )
        if any(one.may_tie for one in beginnings.values()):
            counted = [pair for some in run(replace(work, counting=True)) for pair in some.items()]
            for role, found in lacking.items():
                ties = sum(int(number) for topic, number in counted if topic == role)
                found += [f"which of {ties} rows comes last that have the key and time of another one"] if ties else []
            self._check_lacking(lacking)
        texts = [pair for some in run(work) for pair in some.items()]
        keep_schemas(self.storage, self.verb.application_id, self.inputs.schemas)
        return {task: Manifest.from_json(text) for task, text in texts}

    def _beginnings(self) -> dict[str, Beginning]:
        """Return what inputs begin with, by role; inputs of a verb that keeps nothing yet begin empty."""
        sides = sides_of(self.target.shape)
        if not sides or not self.plan.alone:
            raise RekeyedRowsError(f"rekeyed names the verb {self.verb.name!r}, which {_NONE}; {BACKFILL}")
        return {
            role: Beginning(self.inputs.inputs[role], side, self._rows(verb, old))
            for wanted, (verb, source) in self.wanted.items()
            for role, side, old in self._pairs(wanted, sides, verb, source)
            if any(manifest.files for manifest in self._manifests(verb))
        }

    def _pairs(
        self, wanted: str | None, sides: Mapping[str, KeptSide], verb: str, source: str | None
    ) -> Iterator[tuple[str, KeptSide, KeptSide]]:
        """Yield the role and the side of the new verb, and the side of the old one that it begins with."""
        there = self._sides_of(verb)
        role, old_role = wanted or _only(sides), source or _only(there)
        if not (role or old_role):
            ends = {role for role in there if role not in sides}
            begins = {role for role, side in sides.items() if role not in there and side.kept is not Kept.WAITING}
            if ends or begins:
                raise self._unlike(verb, sides, there)
            yield from ((role, sides[role], old) for role, old in there.items())
            return
        if role not in sides or old_role not in there:
            raise self._unlike(verb, sides, there)
        yield role, sides[role], there[old_role]

    def _sides_of(self, verb: str) -> dict[str, KeptSide]:
        newest = self._history(verb).newest
        found = {} if newest is None else sides_of(newest.shape)
        if not found:
            raise RekeyedRowsError(
                f"rekeyed says that the verb {self.verb.name!r} begins with the rows of {verb!r}, which {_NONE}; "
                f"{BACKFILL}"
            )
        return found

    def _rows(self, verb: str, side: KeptSide) -> KeptRows:
        """Return the rows of one side of a verb, as the checkpoint has them."""
        application_id = application_of(self.verb.owner, verb)
        return KeptRows.of(self.storage, application_id, verb, side, tuple(self._manifests(verb)))

    def _manifests(self, verb: str) -> Collection[Manifest]:
        """Return the manifests of a verb's tasks that count where the checkpoint stands."""
        found = self.held.of_verbs(self.verb.owner, [verb])
        return self._history(verb).standing(found, self.held.batch).manifests.values()

    def _history(self, verb: str) -> History:
        return History.of(self.storage, application_of(self.verb.owner, verb), plain_name(verb))

    def _unlike(self, verb: str, sides: Mapping[str, KeptSide], there: Mapping[str, KeptSide]) -> ConfigurationError:
        """Return the error for verbs of which nothing tells which side begins with which."""
        new, old = _shown(self.verb.name, sides), _shown(verb, there)
        return AmbiguousError(
            f"rekeyed says that the verb {self.verb.name!r} begins with the rows of {verb!r}; these have rows of "
            f"{', '.join(new)} and of {', '.join(old)}, so say which is which, such as "
            f"rekeyed={{{new[-1]!r}: {old[-1]!r}}}"
        )

    def _check_lacking(self, lacking: Mapping[str, list[str]]) -> None:
        """Refuse to begin without what may be missing, unless that is accepted."""
        told = "; ".join(f"{self._sources} has no more: {', '.join(found)}" for found in lacking.values() if found)
        if told and not self.target.declared.accept_loss:
            raise RekeyedRowsError(
                f"the verb {self.verb.name!r} would not be what it is if it had had all rows: {told}. Nothing has been "
                f"done; {BACKFILL}, or, to begin with what there is, declare Evolution(..., accept_loss=True)"
            )
        if told:
            _log.warning("the verb %r begins without some rows, which is accepted: %s", self.verb.name, told)

    @property
    def _sources(self) -> str:
        return ", ".join(dict.fromkeys(repr(verb) for verb, _ in self.wanted.values()))


def _only(sides: Mapping[str, KeptSide]) -> str:
    """Return the input of a verb that has one only; empty for a join."""
    return INPUT if INPUT in sides else ""


def _shown(verb: str, sides: Mapping[str, KeptSide]) -> list[str]:
    """Return the sides of a verb, as a user writes them."""
    return [placed(verb, role) for role in sorted(sides)]
