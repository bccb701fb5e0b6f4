"""The life of a query of verbs, whatever happens in it: each puts out and holds what the oracle says."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pytest

from millpond.adapters.edit import StateEditor, erase
from millpond.adapters.inspect import StateInspector
from millpond.adapters.spark.evolution.evolution import Evolution
from millpond.errors import StateConflictError
from millpond.processors.options.joins import ASOF_JOINS, AsofDirection, JoinType, Side
from millpond.processors.rows.sink_rows import PartRows
from millpond.processors.runtime.batches.batch import Batch
from millpond.stores.evolution.verbs.declarations import verb_and_side
from millpond.stores.typed.expiry import Expired
from tests.evolution import verb_oracle as oracle
from tests.evolution.process import RETAINED, Checkpoint, DeathError
from tests.evolution.story import BACKENDS, Story, other
from tests.evolution.verb_drafts import (
    ASOF,
    CALLING,
    CALLS,
    CORRECTED,
    CUBES,
    FOREIGN,
    GROUPED,
    GROUPS,
    KEEPING,
    MORTAL,
    OVER,
    OVER_CALLS,
    SECOND,
    SIZES,
    TABLES,
    TIMES,
    TOLERANCES,
    TTLS_OF_RULES,
    TYPES,
    WINDOWS,
    Call,
    Column,
    Draft,
    DraftChanges,
    Match,
    begun,
    rekeyed,
)
from tests.evolution.verb_job import OWNER, RunningDraft, Said, VerbJob
from tests.evolution.verb_oracle import Come, Told
from tests.metamorphic.checking import bag, frozen
from tests.metamorphic.histories import rows_of

VERBS: Final = 4
"""So many a query has at most."""
PARTITIONS: Final = 4
"""So many it has at most."""
MANY: Final = (FOREIGN, GROUPED)
"""Verbs of several operators, each of another number of them."""
RELEASE: Final = "a release"
"""A restart with something changed: verbs, partitions, the backend, or what somebody has edited or erased."""
STORES: Final = {
    "latest": "latest",
    **dict.fromkeys(WINDOWS, "aggregate"),
    GROUPED: "groups",
    **dict.fromkeys(OVER, "over"),
}
"""The store that holds the table of a verb, by kind."""


class Arrival(NamedTuple):
    """A row that comes to all verbs: its key, how much its time differs from those of others, and its value."""

    key: str
    late: int
    value: int | None


@dataclass(frozen=True)
class Kept:
    """A committed micro-batch: the verbs that wrote it, and what they know."""

    batch: int
    checkpoint: Checkpoint
    drafts: tuple[Draft, ...]
    told: Mapping[int, Told]


class VerbLife(Story):
    """The life of one query of verbs, step by step.

    Attributes:
        job: the query.
        evolution: what is said of its verbs.
    """

    job: VerbJob

    def __init__(self) -> None:
        super().__init__()
        self.job = VerbJob(self.directory)
        self.drafts: list[Draft] = []
        self.told: dict[int, Told] = {}
        self.known: dict[int, Draft] = {}
        """The verbs as they were when they last kept what their rows are packed with, by number."""
        self.mortal: set[int] = set()
        """The verbs that have had another time to live, by number."""
        self.kept: list[Kept] = []
        self.partitions = 1
        self.backend = "memory"
        self.evolution = Evolution("checkpoint")
        self.edits = 0
        """How often somebody has changed what it holds."""
        self.returns = 0
        """How often it has gone back to an earlier micro-batch."""
        self.started: tuple[Any, ...] | None = None
        """What it was when it was last started."""
        self.looked: dict[int, tuple[Any, ...]] = {}
        """What each verb was when its stores were last looked at, by number, but for what micro-batches told since."""
        self._numbers = 0
        self._rows = 0
        self._random = Random(0)

    def begin(self, kinds: Sequence[str], partitions: int, backend: str) -> None:
        self.partitions, self.backend = partitions, backend
        self.drafts = [self.new(kind) for kind in kinds]
        self.start(self.drafts, says=False)

    def look(self) -> None:
        """Check the stores of each verb in which something else has changed than by micro-batches."""
        for verb in self.job.verbs:
            number = verb.draft.number
            now = verb.draft, verb.settings.generation, self.backend, self.edits, self.returns
            if self.looked.get(number) != now:
                self.check_stores(verb)
                self.looked[number] = now

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def new(self, kind: str) -> Draft:
        """Return a verb that never was."""
        draft = Draft(self.number(), kind, "")
        draft = replace(draft, name=f"{kind}-{draft.number}")
        if kind in CALLING:
            window = SIZES.get(kind, (0,))[0]
            return replace(draft, calls=tuple(self.new_call(one) for one in range(2)), window=window)
        if kind in OVER:
            calls = tuple(self.new_call(one, OVER_CALLS) for one in range(2))
            return replace(draft, calls=calls, columns=(self.new_column("left"),))
        joins = ASOF_JOINS if kind in ("waiting", CORRECTED) else (JoinType.INNER,)
        match = Match(joins[draft.number % len(joins)], tolerance=TOLERANCES[0] if kind == "waiting" else None)
        types = TYPES.get(kind, (JoinType.INNER,))
        how = types[draft.number % len(types)]
        return replace(draft, columns=tuple(self.new_column(side) for side in draft.sides), match=match, how=how)

    def new_call(self, which: int, functions: Iterable[str] = CALLS) -> Call:
        number, names = self.number(), list(functions)
        return Call(number, f"c{number}", names[which % len(names)])

    def new_column(self, side: str) -> Column:
        number = self.number()
        return Column(number, side, f"{side[0]}{number}")

    def start(
        self, drafts: Sequence[Draft], deaths: Sequence[int] = (), *, says: bool = True, into: bool = False
    ) -> None:
        """Restart with these verbs, again and again if the driver dies on the way."""
        evolution = self.evolution if says or into else None
        changes = {one.number: DraftChanges.between(self.known.get(one.number, one), one) for one in drafts}
        said = Said(evolution, into, changes)
        for death in [*deaths, None]:
            try:
                self.job.start(drafts, self.partitions, self.backend, said, death=death)
                break
            except DeathError:
                self.note("killed while carrying over")
        now = tuple(drafts), self.partitions, self.backend, self.edits
        if self.started not in (None, now):
            self.note(RELEASE)
        self.drafts, self.started = list(drafts), now
        self.told = {one.number: self.told.get(one.number, Told()).with_calls(one.calls) for one in drafts}
        if into:
            self.kept = []

    def evolve(
        self, drafts: Sequence[Draft], deaths: Sequence[int], *, into: bool = False, accepted: bool = False
    ) -> None:
        """Restart with other verbs, and say of their names what is to be said, beside what was said before."""
        names = {one.number: one.name for one in self.drafts}
        now = {one.number: one.name for one in drafts}
        renamed = {old: now[one] for one, old in names.items() if now.get(one, old) != old}
        olds = {one.number: one for one in self.drafts}
        pairs = [(olds[one.begins[0]], one) for one in drafts if one.begins and one.begins[0] in olds]
        before, lent = self.evolution, {old.number for old, _ in pairs}
        gone = _gone([name for one, name in names.items() if one not in {*now, *lent}], before)
        said = [*before.rekeyed.items(), *(item for old, new in pairs for item in rekeyed(old, new).items())]
        self.evolution = Evolution(
            "checkpoint",
            {old: new for old, new in {**before.renamed, **renamed}.items() if not {old, new} & gone},
            [*before.dropped, *sorted(gone)],
            rekeyed={place: source for place, source in said if verb_and_side(place)[0] not in gone},
            accept_loss=before.accept_loss or accepted,
        )
        self.start(drafts, deaths, into=into and self.job.batch is not None)

    def batch(self, rows: Sequence[Arrival], right: bool, deaths: Sequence[int] = ()) -> None:
        """Run a micro-batch with rows of one side, which is repeated by a restarted process as long as that dies."""
        come = {draft.number: self.come(draft, rows, right) for draft in self.drafts}
        inputs = {draft.number: self.tables(draft, come[draft.number]) for draft in self.drafts}
        for death in [*deaths, None]:
            try:
                told = self.job.run(inputs, self._random, death=death)
                break
            except DeathError:
                self.note("killed in a batch")
                self.start(self.drafts)
        for verb in self.job.verbs:
            number = verb.draft.number
            before, after = self.told[number], self.told[number].grown(verb.draft, come[number])
            self.check_told(verb.draft, before, after, come[number], rows_of(told[number]))
            self.told[number] = after
            if come[number]:
                self.known[number] = verb.draft
        self.keep()

    def keep(self) -> None:
        assert self.job.batch is not None
        now = Kept(self.job.batch, dict(self.job.checkpoint), tuple(self.drafts), dict(self.told))
        self.kept = [*self.kept[-RETAINED:], now]

    def come(self, draft: Draft, rows: Sequence[Arrival], right: bool) -> list[Come]:
        side = "right" if right and "right" in draft.sides else "left"
        found = []
        for row in rows:
            self._rows += 1
            time = (1_000 + 2 * self._rows - row.late) * SECOND + self._rows
            group = f"g{self._rows % 3}"
            time = self.met(draft, row, side, time)
            values = {one.number: None if row.value is None else row.value + one.number for one in draft.of(side)}
            found.append(Come(side, row.key, time, values, row.value, group))
        return found

    def met(self, draft: Draft, row: Arrival, side: str, time: int) -> int:
        """Return the time of a row; of some left ones that of the newest right one, if that is not long ago."""
        if draft.kind not in ASOF or side == "right" or row.late % 3:
            return time
        since = (1_000 + 2 * self._rows - 30) * SECOND
        rows = self.told[draft.number].rows
        return max(
            (one.time for one in rows if (one.side, one.key) == ("right", row.key) and one.time >= since), default=time
        )

    def tables(self, draft: Draft, come: Sequence[Come]) -> dict[str, list[pa.Table]]:
        """Return the rows of a micro-batch, in two files of each side."""
        found = {}
        for side in draft.sides:
            columns, time, group = draft.of(side), draft.named(TIMES, side), draft.named(GROUPS, side)
            rows = [
                {"k": one.key, time: one.time, "v": one.plain, "w": one.marked, "f": one.named, group: one.group}
                | {"o": one.operation}
                | {column.name: one.values[column.number] for column in columns}
                for one in come
                if one.side == side
            ]
            schema = draft.schema(side)
            found[f"{side}-{draft.number}"] = [pa.Table.from_pylist(rows[at::2], schema) for at in range(2)]
        return found

    def check_told(
        self, draft: Draft, before: Told, after: Told, come: Sequence[Come], rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Check what a verb puts out in a micro-batch."""
        if draft.kind in ("streams", "alone"):
            assert bag(rows) == bag(oracle.pairs(draft, after)) - bag(oracle.pairs(draft, before)), draft
            alone = (None in (row.get(name) for name in draft.times) for row in rows)
            if draft.how is not JoinType.SEMI and any(alone):
                self.note("a row of a stream was told alone")
        elif draft.kind == "apply":
            assert bag(rows) == bag(after.results), draft
            if any(row["what"] != "row" for row in rows):
                self.note("a timer fired")
            if after.results != before.grown(replace(draft, ttl=None), come).results:
                self.note("a rule found no state any more")
        elif draft.kind in OVER:
            assert bag(rows) == bag(oracle.shown(draft, after)), draft
        elif draft.kind in ASOF:
            due = come if draft.kind == "asof" else after.due
            assert bag(rows) == bag(oracle.matched(draft, before, due)), draft
            inexact = replace(draft, match=replace(draft.match, exact=not draft.match.exact))
            if bag(rows) != bag(oracle.matched(inexact, before, due)):
                self.note("a row of the very time of another one")
        else:
            self.check_changes(draft, *oracle.change(draft, before, after), rows)
            if any(key not in oracle.table(draft, after) for key in oracle.table(draft, before)):
                self.note(f"{draft.expired.value}: something expired")

    def check_changes(
        self, draft: Draft, before: Mapping[Any, Any], after: Mapping[Any, Any], rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Check that a change feed tells of each key that has changed, and last what it is now."""
        last = {_key(draft, row): row for row in sorted(rows, key=lambda row: int(row["sequence"]))}
        for key, row in last.items():
            shown = {name: row[name] for name in row if name not in ("op", "sequence", "change_time")}
            assert (frozen(shown) if row["op"] == "upsert" else None) == _shown(after.get(key)), (draft, key)
        changed = {key for key in before.keys() | after.keys() if _shown(before.get(key)) != _shown(after.get(key))}
        assert changed <= last.keys(), draft

    def check(self) -> None:
        """Check what the tasks find in their stores."""
        for verb in self.job.verbs:
            self.check_stores(verb)

    def check_stores(self, verb: RunningDraft) -> None:
        """Check what the tasks of a verb find in their stores."""
        if verb.draft.kind in STORES:
            expected = oracle.table(verb.draft, self.told[verb.draft.number])
            found = Counter(map(frozen, self.stored(verb)))
            assert found == Counter(map(frozen, expected.values())), (verb.draft, found, expected)

    def stored(self, verb: RunningDraft) -> list[dict[str, Any]]:
        """Return the rows of the store that holds a verb's table, without those that its history keeps beside them."""
        name = STORES[verb.draft.kind]
        parts = verb.made.verb.stores[name]
        shown = PartRows(parts, pa.schema([one for some in parts for one in some.schema]))
        found: list[dict[str, Any]] = []
        for part, partition in ((part, one) for part, one in verb.tasks if name in part.stores):
            with self.job.looking(verb, part, partition) as stores:
                store, kind = stores[name], part.stores[name].kind
                read = list(store.fetch_keys() if kind.in_segments else store.scan())
                if kind.versioned:
                    latest = {key: store.get(key) for key, _ in read}
                    read = [(key, one) for key, one in latest.items() if one is not None]
            entries = [(key, one.value, one.timestamp) if kind.stamped else (key, one, None) for key, one in read]
            if entries:
                found += rows_of(shown.to_table(Batch(*map(list, zip(*entries, strict=True)))))
        return [{name: row[name] for name in row if name != "change_time"} for row in found]

    def chosen(self, which: int, kinds: Sequence[str] | None = None) -> Draft | None:
        found = [one for one in self.drafts if kinds is None or one.kind in kinds]
        return found[which % len(found)] if found else None

    def change(self, before: Draft, after: Draft, what: str, deaths: Sequence[int]) -> None:
        """Restart with another release of one verb, not to be what it was before it began with others' rows."""
        if before.begins is not None and after.number == before.number:
            self.kept = [one for one in self.kept if before.number in one.told]
        self.evolve([after if one is before else one for one in self.drafts], deaths)
        self.note(what)

    def change_columns(self, which: int, how: str, column: int, deaths: Sequence[int]) -> None:
        """Add, drop, rename or widen a column; and put all in another order."""
        draft = self.chosen(which, [one.kind for one in self.drafts if one.columns])
        if draft is None:
            return
        columns = list(draft.columns)
        at = column % len(columns)
        one = columns[at]
        if how == "comes":
            columns.insert(at, self.new_column(one.side))
        elif how == "goes":
            if len(draft.of(one.side)) == 1:
                return
            del columns[at]
        elif how == "has another name":
            columns[at] = replace(one, name=f"{one.side[0]}{self.number()}")
        else:
            columns[at] = replace(one, wide=True)
        self.change(draft, replace(draft, columns=tuple(columns)), f"a column {how}", deaths)

    def change_calls(self, which: int, how: str, call: int, deaths: Sequence[int]) -> None:
        """Add, drop or rename a call, or put all in another order."""
        draft = self.chosen(which, [*CALLING, *OVER])
        if draft is None:
            return
        calls = list(draft.calls)
        at = call % len(calls)
        if how == "comes":
            calls.insert(at, self.new_call(call, OVER_CALLS if draft.kind in OVER else CALLS))
        elif how == "goes":
            if len(calls) == 1:
                return
            del calls[at]
        elif how == "has another name":
            calls[at] = replace(calls[at], name=f"c{self.number()}")
        else:
            calls.reverse()
        self.change(draft, replace(draft, calls=tuple(calls)), f"a call {how}", deaths)
        if how == "comes" and OVER_CALLS[calls[at].function][0].where is not None:
            self.note("a call with a condition comes")
        if draft.kind in OVER:
            self.note(f"over: a call {how}")
        if draft.kind == GROUPED:
            self.note(f"groups: a call {how}")

    def rename_verb(self, which: int, deaths: Sequence[int]) -> None:
        draft = self.chosen(which)
        assert draft is not None
        self.change(draft, replace(draft, name=f"{draft.kind}-{self.number()}"), "a verb has another name", deaths)

    def replace_verb(self, which: int, kind: str, deaths: Sequence[int]) -> None:
        """Put a new verb in the place of another; at another checkpoint, if it has another number of operators."""
        draft = self.chosen(which)
        assert draft is not None
        drafts = [self.new(kind) if one is draft else one for one in self.drafts]
        self.evolve(drafts, deaths, into=draft.kind != kind and not {draft.kind, kind}.isdisjoint(MANY))
        self.note("a verb stands in the place of another")

    def lends(self, draft: Draft) -> bool:
        """Return whether another verb may begin with its rows; which rows with a time to live are there is unknown."""
        applications = {one.application_id for one in self.job.checkpoint.values()}
        return (
            draft.kind in KEEPING
            and draft.number in self.known
            and draft.number not in self.mortal
            and f"{OWNER}.{draft.name}" in applications
        )

    def rekey_verb(
        self, which: int, kind: int, sides: tuple[int, int], grouped: bool, into: bool, deaths: Sequence[int]
    ) -> None:
        """Begin a new verb, by another key or of another kind, with the rows of one that is gone."""
        lenders = [one for one in self.drafts if self.lends(one)]
        if not lenders:
            return
        old = lenders[which % len(lenders)]
        kinds = TABLES if old.kind in TABLES else [old.kind]
        new = self.begun(old, kinds[kind % len(kinds)], sides, grouped=grouped)
        drafts = [new if one is old else one for one in self.drafts]
        accepted = new.lacks(old)
        lent = self.told[old.number].lent(new.lent)
        if accepted and lent.rows and not self.evolution.accept_loss:
            before = self.evolution
            with pytest.raises(StateConflictError, match="accept_loss=True"):
                self.evolve(drafts, [], into=into)
            self.evolution = before
        application = f"{OWNER}.{old.name}"
        self.kept = [
            one for one in self.kept if application in {some.application_id for some in one.checkpoint.values()}
        ]
        self.told[new.number] = lent
        self.evolve(drafts, deaths, into=into, accepted=accepted)
        self.known[new.number] = new
        self.note("a verb began with the rows of another")
        if new.grouped != old.grouped:
            self.note("a verb began by another key")

    def begun(self, old: Draft, kind: str, sides: tuple[int, int], *, grouped: bool) -> Draft:
        """Return a verb that begins with the rows of another one: one side, or both if they are of the same kind."""
        mine, theirs = KEEPING[kind], KEEPING[old.kind]
        pairs = {mine[sides[0] % len(mine)]: theirs[sides[1] % len(theirs)]}
        if kind == "streams" or (kind == old.kind and sides[0] == sides[1]):
            pairs = {side: side for side in mine}
        known = self.known[old.number]
        columns = [replace(one, side=new) for new, source in pairs.items() for one in known.of(source)]
        draft = begun(self.number(), kind, old, pairs, columns)
        others = tuple(self.new_column(side) for side in draft.sides if side not in pairs)
        return replace(draft, columns=draft.columns + others, grouped=grouped and kind in ("latest", "streams"))

    def add_verb(self, at: int, kind: str, deaths: Sequence[int]) -> None:
        """Add one verb, for which the query goes on at another checkpoint."""
        if len(self.drafts) < VERBS:
            drafts = list(self.drafts)
            drafts.insert(at % (len(drafts) + 1), self.new(kind))
            self.evolve(drafts, deaths, into=True)
            self.note("a verb came")

    def drop_verb(self, which: int, deaths: Sequence[int]) -> None:
        """Drop one verb, for which the query goes on at another checkpoint."""
        if len(self.drafts) > 1:
            draft = self.chosen(which)
            self.evolve([one for one in self.drafts if one is not draft], deaths, into=True)
            self.note("a verb went")

    def change_reach(self, which: int, deaths: Sequence[int]) -> None:
        """Make a history or grace longer, or shorter again."""
        draft = self.chosen(which, ["latest", "windows", "sessions", *ASOF, CORRECTED, "streams"])
        if draft is not None and not draft.eras:
            self.change(draft, replace(draft, longer=3 - draft.longer), "another history or grace", deaths)

    def change_ttl(
        self, which: int, ttl: int | None, expired: Expired, rows: Sequence[Arrival], deaths: Sequence[int]
    ) -> None:
        """Let what a verb holds live longer, shorter or for ever from now on, and tell something else of its end."""
        draft = self.chosen(which, [*MORTAL, "apply"])
        if draft is not None:
            if draft.kind == "apply":
                ttl, expired = None if ttl is None else ttl // TTLS_OF_RULES, Expired.SILENT
            expired = Expired.SILENT if ttl is None else expired
            self.mortal.add(draft.number)
            self.change(draft, replace(draft, ttl=ttl, expired=expired), "another time to live", deaths)
            self.in_time(rows)

    def change_match(
        self, which: int, how: JoinType, exact: bool, tolerance: int, direction: AsofDirection,
        rows: Sequence[Arrival], deaths: Sequence[int],
    ) -> None:  # fmt: skip
        """Let left rows of an as-of join meet others from now on, also those that wait."""
        draft = self.chosen(which, ASOF)
        if draft is None:
            return
        if draft.kind == "waiting":
            match = Match(how, exact, TOLERANCES[tolerance % len(TOLERANCES)], direction)
        else:
            match = Match(how, exact, (None, *TOLERANCES)[tolerance % (len(TOLERANCES) + 1)])
        self.change(draft, replace(draft, match=match), "another match", deaths)
        self.note(f"{how.value}: another match")
        self.note(f"{match.direction.value}: another match")
        self.in_time(rows)

    def in_time(self, rows: Sequence[Arrival]) -> None:
        """Run a micro-batch that is later than all before; totals without a time to live do not know how late it is."""
        self.batch([one._replace(late=0) for one in rows], False)

    def change_windows(self, which: int, size: int, wait: int, deaths: Sequence[int]) -> None:
        """Make windows, or gaps, longer or shorter from a time on that no row has reached; a window begins there."""
        draft = self.chosen(which, list(SIZES))
        if draft is None:
            return
        others = [one for one in SIZES[draft.kind] if one != draft.window]
        length = others[size % len(others)]
        grid = length * SECOND if draft.kind == "windows" else 1
        free = max([0, self.told[draft.number].clock, *(time for _, time in draft.eras)]) + 1 + wait * SECOND
        after = replace(draft, eras=(*draft.eras, (draft.window, -(-free // grid) * grid)), window=length)
        self.change(draft, after, f"other {draft.kind} from a time on", deaths)

    def repartition(self, more: int, deaths: Sequence[int]) -> None:
        self.partitions = (self.partitions - 1 + more) % PARTITIONS + 1
        self.evolve(self.drafts, deaths)

    def restart(self, says: bool) -> None:
        """Restart with the same verbs, with or without what was said of them."""
        self.start(self.drafts, says=says)

    def switch_backend(self, which: int) -> None:
        self.backend = other(BACKENDS, self.backend, which)
        self.start(self.drafts)
        self.note(f"switch to {self.backend}")

    def set_back(self, which: int, deaths: Sequence[int]) -> None:
        """Go back to an earlier micro-batch, with the verbs of today."""
        if len(self.kept) < 2:
            return
        del self.kept[which % (len(self.kept) - 1) + 1 :]
        at = self.kept[-1]
        self.job.batch, self.job.checkpoint = at.batch, dict(at.checkpoint)
        self.told = {one.number: self.told[one.number].back_at(self.told_at(one, at)) for one in self.drafts}
        self.returns += 1
        self.start(self.drafts, deaths)
        self.note("went back")
        lived = {one.number: (one.ttl, one.match) for one in at.drafts}
        if any(lived.get(one.number) != (one.ttl, one.match) for one in self.drafts):
            self.in_time([Arrival("k0", 0, None)])

    @staticmethod
    def told_at(draft: Draft, at: Kept) -> Told:
        """Return what a verb knew after a micro-batch, or what it begins with if there was none yet."""
        if draft.number in at.told or draft.begins is None:
            return at.told.get(draft.number, Told())
        return at.told[draft.begins[0]].lent(draft.lent)

    def edit_verb(self, which: int, put: int | None, undone: bool, deaths: Sequence[int]) -> None:
        """Delete a result or put another while the query is stopped, and perhaps bring the old one back."""
        draft = self.chosen(which, list(_RESULTS))
        keys = [] if draft is None else list(oracle.table(draft, self.told[draft.number]))
        if draft is None or not keys or not self.job.checkpoint:
            return
        key, before = keys[-1 - which // VERBS % len(keys)], self.told[draft.number]
        calls = {one.name: one for one in (*draft.calls, *self.known[draft.number].calls)}
        if put is None:
            self.edit(partial(_delete, draft, key), deaths)
            self.told[draft.number] = before.deleted(draft, key)
        elif any(one.function not in oracle.TELLING for one in calls.values()):
            return
        else:
            # Counts of the same rows are equal.
            told = {name: put if one.function in oracle.COUNTS else put + one.number for name, one in calls.items()}
            shown: set[str] = set()
            self.edit(partial(_put, draft, key, told, shown), deaths)
            self.told[draft.number] = before.put(draft, key, {calls[name].number: told[name] for name in shown})
        what = _RESULTS[draft.kind]
        self.note(f"a {what} was deleted" if put is None else f"a {what} was put")
        held = oracle.table(draft, before)
        self.edits += held != oracle.table(draft, self.told[draft.number])
        if undone:
            self.edit(_undo, [])
            self.told[draft.number] = before
            self.note("a row was brought back")
        self.edited(draft)

    def edit_timer(
        self, which: int, key: str, name: str, wait: int | None, undone: bool, deaths: Sequence[int]
    ) -> None:
        """Set, move or delete a timer of a rule while the query is stopped, and perhaps take that back.

        One for a time that has passed fires in the next micro-batch of its task, so there is one for all tasks.
        """
        draft = self.chosen(which, ["apply"])
        if draft is None or draft.number not in self.known or not self.job.checkpoint:
            return
        before = self.told[draft.number]
        time = None if wait is None or before.clock == oracle.NEVER else before.clock + wait * SECOND
        self.edit(partial(_set_timer, draft, key, name, time), deaths)
        after = before.with_timer(key, name, time)
        moved = before.ruled.get(key, oracle.Ruled()).timers.get(name) != time
        self.note("a timer was deleted" if time is None else "a timer was set")
        if undone and moved:
            self.edit(_undo, [])
            after = before
            self.note("a timer was as before")
        self.told[draft.number] = after
        self.edited(draft)
        if wait is not None and wait <= 0:
            self.in_time([Arrival("k0", 0, None)])

    def edited(self, draft: Draft) -> None:
        """Note that somebody has edited what a verb holds, and that it goes on from there."""
        edited = {draft.number: self.told[draft.number]}
        self.kept = [*self.kept[:-1], *(replace(one, told={**one.told, **edited}) for one in self.kept[-1:])]
        self.start(self.drafts)

    def keeps(self, draft: Draft) -> bool:
        """Return whether the keys of a verb's rows are known to its state."""
        told = self.told[draft.number]
        return bool(told.waiting) or any(draft.kind != "asof" or one.side == "right" for one in told.rows)

    def erase_key(self, key: str, deaths: Sequence[int]) -> None:
        """Erase a key from all verbs while the query is stopped; nobody can go back then.

        Of results of all keys, as in cubes and groups, nobody can tell what they have of it; and left rows that name it
        as their foreign key find another one of that key later.
        """
        tells = any(one.kind in (CUBES, GROUPED, FOREIGN) for one in self.drafts)
        if tells or not self.job.checkpoint or not any(map(self.keeps, self.drafts)):
            return
        self.edit(partial(_erase, key), deaths)
        before, self.told = self.told, {number: told.without(key) for number, told in self.told.items()}
        self.edits += self.told != before
        self.kept = []
        self.note("a key was erased")
        self.start(self.drafts)

    def edit(self, edit: Callable[[StateInspector], None], deaths: Sequence[int]) -> None:
        for death in [*deaths, None]:
            try:
                self.job.edit(edit, death=death)
                return
            except DeathError:
                self.note("killed in an edit")


def _gone(dropped: Sequence[str], said: Evolution) -> set[str]:
    """Return the names that are gone with verbs: their former ones, and those of verbs with whose rows they began."""
    found, rest = set[str](), list(dropped)
    while rest:
        name = rest.pop()
        names = {name, *said.of_verbs.former(name)}
        found |= names
        lent = {source for name in names for source, _ in said.of_verbs.begins_with(name).values()}
        rest += lent - found
    return found


def _key(draft: Draft, row: Mapping[str, Any]) -> Any:
    if draft.kind in (CUBES, CORRECTED):
        return tuple(row[name] for name in ("k", "g", "grouping_id" if draft.kind == CUBES else "at"))
    if draft.kind == FOREIGN and draft.how.keeps(Side.RIGHT):
        return row["k"], row["f"]
    if draft.kind == GROUPED:
        return row["g"]
    for place in ("window", "rank"):
        if place in row:
            return row["k"], row[place]
    return tuple(row[name] for name in draft.keys("left")) if draft.grouped else row["k"]


def _shown(row: Mapping[str, Any] | None) -> Any:
    return None if row is None else frozen(row)


def _delete(draft: Draft, key: Any, inspector: StateInspector) -> None:
    with StateEditor(inspector, "ann", "") as editor:
        name, start = (key[0], _instant(key[1][0])) if draft.kind in SIZES else (key, None)
        editor.delete("aggregate", [name], window_start=start, application_id=f"{OWNER}.{draft.name}")
        editor.commit()


def _put(draft: Draft, key: Any, told: Mapping[str, int], shown: set[str], inspector: StateInspector) -> None:
    """Put a result, with those of its calls that are shown."""
    with StateEditor(inspector, "ann", "") as editor:
        application = f"{OWNER}.{draft.name}"
        table = editor.view("aggregate", application_id=application).get([key[0] if draft.kind in SIZES else key])
        assert table is not None
        (row,) = (
            one for one in table.to_pylist() if draft.kind not in SIZES or one["window_start"] == _instant(key[1][0])
        )
        shown.update(row["value"])
        value = {name: told[name] for name in shown}
        if row["value"] != value:  # whoever died in it has put it before
            editor.put("aggregate", [{**row, "value": value}], application_id=application)
            editor.commit()


def _set_timer(draft: Draft, key: str, name: str, time: int | None, inspector: StateInspector) -> None:
    with StateEditor(inspector, "ann", "") as editor:
        moment = None if time is None else _instant(time)
        editor.set_timer(f"{draft.name}-timers", [key], moment, name=name, application_id=f"{OWNER}.{draft.name}")
        editor.commit()


def _instant(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


_RESULTS: Final = {"totals": "row", "windows": "window", "sessions": "session"}
"""What those of an aggregate are called, by kind."""


def _undo(inspector: StateInspector) -> None:
    StateEditor(inspector, "bob", "").undo()


def _erase(key: str, inspector: StateInspector) -> None:
    erase(inspector, [{"k": key}], by="ann")
