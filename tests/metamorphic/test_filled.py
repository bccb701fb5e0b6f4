"""A result of an aggregate that comes later, with the rows so far, is what it is where it was there from the beginning.

The oracle is the same verb that had all results from the beginning: from the change on both keep and put out the same.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from millpond.adapters.edit import StateEditor
from millpond.adapters.inspect import StateInspector
from millpond.adapters.spark.evolution import evolution as evolving
from millpond.adapters.spark.evolution.evolution import Evolution, Standpoint, Whereabouts, generation_at
from millpond.adapters.spark.evolution.rekeyed import NewVerb
from millpond.adapters.spark.job.job import Job
from millpond.adapters.spark.job.options import JobOptions
from millpond.adapters.spark.verbs.calls import CallStates, call_states, filling, past_rows
from millpond.adapters.spark.verbs.frames.kept_schemas import ColumnChanges, KeptSchemas
from millpond.adapters.spark.verbs.frames.verb_run import VerbRun
from millpond.errors import StateConflictError
from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.distribution.plan import Plan
from millpond.processors.options.on_error import OnError
from millpond.processors.verbs.aggregates.call import shared_columns
from millpond.processors.verbs.kept_calls import CallChanges
from millpond.processors.verbs.rekeying.past_rows import IN_ORDER, PAST_SCHEMA, PastRows
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.evolution.beginning import Beginning
from millpond.stores.evolution.record import EvolutionRecord
from millpond.stores.evolution.seeding import Sowing
from tests.evolution.process import DeathError, HeldCheckpoint, in_process
from tests.metamorphic.checking import event, frozen, histories, own, schema
from tests.metamorphic.engine import Query, RunningVerb
from tests.metamorphic.histories import BACKENDS, SECOND, Chain, Event, Way, cut, tables
from tests.metamorphic.histories import rows_of as rows_in
from tests.metamorphic.keeping import POLICY, BackendKeeper, DurableKeeper
from tests.metamorphic.oracle import Row
from tests.metamorphic.test_changed_calls import FUNCTIONS, KINDS, LONG, bound_to, kept_of, stored, types_of

pc: Any = _compute

SOURCE = schema("a")
NAME = "out"
WINDOWS: dict[str, tuple[Any, Mapping[int, Any]]] = {
    **{kind: (KINDS[kind][0], {}) for kind in KINDS},
    "tumbling, changed": (TimeWindows(7_000, grace=LONG), {1_013 * SECOND: TimeWindows(5_000, grace=LONG)}),
    "session, changed": (SessionWindows(4_000, grace=LONG), {1_013 * SECOND: SessionWindows(2_000, grace=LONG)}),
}
Calls = Mapping[str, str]
"""By result, which of ``FUNCTIONS``."""


class FoldEmptied(PastRows):
    """Folds nothing."""

    def written(self, sowing: Sowing, rows: pa.Table) -> dict[str, Manifest]:
        return super().written(sowing, rows.slice(0, 0))


def made_of(kind: str, calls: Calls, name: str = NAME, **said: Any) -> Made:
    window, until = WINDOWS[kind]
    chosen = {one: FUNCTIONS[function][0] for one, function in calls.items()}
    return make_aggregate(
        name, Rows.of("a", SOURCE), chosen, by="k", time="at", window=window, until=until, **said
    )  # fmt: skip


def bound_of(calls: Calls, **said: Any) -> RowAggregate:
    chosen = {name: FUNCTIONS[function][0] for name, function in calls.items()}
    return RowAggregate(chosen, types_of(chosen), shared=shared_columns(chosen), **said)


class Keeper(DurableKeeper):
    """Keeps what tasks of a generation have."""

    record: EvolutionRecord

    def fingerprint_of(self, application: str, plan: Plan) -> str:
        return self.record.fingerprint

    def start_of(self, place: str) -> Manifest | None:
        return self.record.start_of(place.rpartition("/")[2], self.committed.get(place), None)


@dataclass
class Life:
    """A verb with durable files, and what its driver does at each start."""

    place: Path
    kind: str
    fold: type[PastRows] = PastRows
    loses: bool = False
    come: list[Event] = field(default_factory=list)
    evolution: Evolution | None = field(default_factory=lambda: Evolution("/c"))
    batch: int = 0

    def __post_init__(self) -> None:
        self.keeper = Keeper(self.place, BACKENDS, loses=self.loses)

    location = "/c"

    def last(self) -> int | None:
        return self.batch - 1 if self.batch else None

    def held(self) -> tuple[int | None, Mapping[int, Collection[Manifest]]]:
        return self.last(), {0: list(self.keeper.committed.values())}

    def start(
        self, calls: Calls, partitions: int, changes: CallChanges | None = None, dies: str = "", **kept: Any
    ) -> None:
        """Do what the driver does before the query starts."""
        self.keeper.restart()
        options = JobOptions(
            local_dir=None, partitions=partitions, backend=None, on_error=OnError.FAIL, max_ahead=None, policy=POLICY,
            reset_stream_time=None, evolution=self.evolution, checksums=False, upgrade=None, memory_budget=None,
            shares_operators=False,
        )  # fmt: skip
        job = Job("app", self.keeper.storage, options).part(NAME).looking().of_verb("app", NAME, goes_on=True)
        schemas, nothing, said = KeptSchemas(job, NAME, ColumnChanges({}, ()), True), self._nothing, CallChanges()
        run = VerbRun(
            job=job, name=NAME, session=nothing, inputs=[], schemas=schemas, handling=nothing, complete=None,
            streaming=True, results=nothing, asked={}, backfill=None,
        )  # fmt: skip
        first = bound_of(calls)
        wanted = kept_of(first, {name: FUNCTIONS[one][0] for name, one in calls.items()})
        rows = Rows.of("a", SOURCE).read("input", ["k"], [], "at")
        schemas.keys(rows)
        states = call_states(run, rows, wanted, changes or said, first.state_serde.name)
        self.made = made_of(self.kind, calls, f"app.{NAME}", binding=bound_to(states.slots, states.since))
        running = RunningVerb(self.made, partitions)
        filled = filling(NAME, states, self._sow(calls, states, running, dies)) if states.filled else None
        whereabouts = Whereabouts(
            Standpoint("/c") if self.evolution else None, self if self.batch else None, in_process
        )
        history, inputs = job.history(NAME), NewVerb({}, True, schemas.by_place, filled)
        with pytest.MonkeyPatch.context() as patch:
            if dies == "kept":
                patch.setattr(evolving, "keep_schemas", self._die)
            record = generation_at(
                whereabouts,
                history,
                running.plan,
                options.evolution if self.batch else None,
                None,
                job.verb,
                (),
                inputs,
            )
        beginning = Beginning(job.storage, job.application_id, NAME, record, schemas.by_place)
        beginning.keep()
        self.keeper.record, self.partitions = record, partitions
        self.query = Query([self.made], [partitions], self.keeper, Random(1))
        self.query._batch = self.batch

    def edit(self, store: str, row: Mapping[str, Any]) -> None:
        """Put a row while the query does not run."""
        places = {(0, number): one for number, one in enumerate(self.keeper.committed.values())}
        checkpoint: Any = HeldCheckpoint("/c", self.last(), places, 1)
        with StateEditor(StateInspector(checkpoint, self.keeper.storage), "ann", "") as editor:
            editor.put(store, [row])
            editor.commit()

    def run(self, events: Sequence[Event], random: Random) -> list[Row]:
        found: list[Row] = [row for table in self.query.run(sent(self.made, events, random)) for row in rows_in(table)]
        self.come += events
        self.batch += 1
        return found

    @property
    def _nothing(self) -> Any:
        """In the place of what only Spark has."""
        return None

    def _sow(self, calls: Calls, states: CallStates, running: RunningVerb, dies: str) -> Any:
        """Return a function that does what a job of Spark does, task by task."""
        new = {name: calls[name] for name in states.new}

        def sow(sowing: Sowing) -> Mapping[str, Manifest]:
            past = RunningVerb(made_of(self.kind, new, "past"), self.partitions).readings["input"]
            serde = bound_of(calls, slots=states.slots).state_serde
            places = tuple(states.filled[name] for name in new)
            args = past_rows(running.plan, self.made.verb, bound_of(new), serde, places)
            fold, written = self.fold(**vars(args)), dict[str, Manifest]()
            reader = past.source.reader(0)
            rows = pa.Table.from_pylist(own(self.come, "a"), SOURCE)
            records, _ = reader.packed(reader.usable(past.selection.of(rows)))
            by_task = fold.sent(records).sort_by([(name, "ascending") for name in IN_ORDER])
            for task in sowing.shape.tasks:
                mine = by_task.filter(pc.equal(by_task["task"], task))
                written |= fold.written(sowing, mine.cast(PAST_SCHEMA))
                if dies == "folding":
                    self._die()
            return written

        return sow

    def _die(self, *_: Any) -> None:
        raise DeathError


def sent(made: Made, events: Sequence[Event], random: Random) -> Mapping[str, list[pa.Table]]:
    return tables(Chain([made], {"a": SOURCE}, {"a": "at"}), events, 2, random)


def shown(rows: Sequence[Row]) -> Counter[frozenset[tuple[str, Any]]]:
    return Counter(frozen({name: one for name, one in row.items() if name != "sequence"}) for row in rows)


def random_events(random: Random) -> list[Event]:
    places = random.sample([(key, second) for key in [None, "", *"abc"] for second in range(35)], random.randint(3, 25))
    return [event("a", key, second, random.choice([None, *range(10)]), "", with_op=False) for key, second in places]


def live(kind: str, seed: int, functions: Sequence[str], *, dies: str = "", fold: type[PastRows] = PastRows) -> None:
    """Run a verb that gets results with the rows so far, beside one that has had them from the beginning."""
    random = Random(seed)
    before = {"n": "rows", "s": "sum", "gone": "max"}
    calls = {f"r{number}": one for number, one in enumerate(functions)} | {"s'": "sum", "n": "rows"}
    changes = CallChanges(
        [f"r{n}" for n in range(len(functions))], {"s": "s'"}, ["gone"], ["r0", "r1"][: len(functions)]
    )
    events, partitions = random_events(random), [random.choice([1, 2, 3]) for _ in range(2)]
    batches = cut(events, Way(seed, 5, 2, (1,)), random)
    with TemporaryDirectory() as place, closing(BackendKeeper(Path(place, "oracle"), "memory")) as keeper:
        whole = made_of(kind, calls)
        oracle = Query([whole], [partitions[1]], keeper, random)
        life = Life(Path(place), kind, fold, loses=bool(seed % 2))
        with closing(life.keeper):
            life.start(before, partitions[0])
            for some in batches[:3]:
                life.run(some, random)
                oracle.run(sent(whole, some, random))
            life.partitions = partitions[1]
            if dies:
                with pytest.raises(DeathError):
                    life.start(calls, partitions[1], changes, dies)
            life.start(calls, partitions[1], changes)
            for number, some in enumerate(batches[3:]):
                if number:
                    before_again = life.keeper.record
                    life.start(calls, partitions[1], changes)
                    assert life.keeper.record == before_again, "it may stay declared, and does nothing"
                found = life.run(some, random)
                expected = [row for table in oracle.run(sent(whole, some, random)) for row in rows_in(table)]
                assert shown(found) == shown(expected)
                assert shown(stored(life.made, partitions[1], life.keeper)) == shown(
                    stored(whole, partitions[1], keeper)
                )


SOME = st.lists(st.sampled_from(sorted(FUNCTIONS)), min_size=1, max_size=2)


@pytest.mark.parametrize("kind", sorted(WINDOWS))
@histories(8)
@given(st.integers(0, 1 << 32), SOME, st.sampled_from(["", "", "folding", "kept"]))
def test_a_result_with_the_rows_so_far_is_as_if_it_had_been_there_from_the_beginning(
    kind: str, seed: int, functions: list[str], dies: str
) -> None:
    """It holds for all windows, engines and partitions, and if a process dies before the record or behind it."""
    live(kind, seed, functions, dies=dies)


def test_without_the_rows_it_is_not() -> None:
    with pytest.raises(AssertionError):
        live("key", 5, ["rows"], fold=FoldEmptied)


@pytest.mark.parametrize("edited", [False, True])
def test_a_query_that_is_set_back_behind_the_rows_so_far_gets_them_under_another_name(
    tmp_path: Path, edited: bool
) -> None:
    random, calls = Random(1), {"n": "rows", "x": "sum"}
    first, second = ([event("a", "k", 10 * run + n, n + 1, "", with_op=False) for n in range(3)] for run in range(2))
    life = Life(tmp_path, "key")
    with closing(life.keeper):
        life.start({"n": "rows"}, 2)
        life.run(first[:1], random)
        committed = dict(life.keeper.committed)
        life.run(first[1:], random)
        life.start(calls, 2, CallChanges(["x"], filled=["x"]))
        life.run(second, random)
        life.keeper.committed, life.batch, life.come = committed, 1, first[:1]
        if edited:
            life.edit("aggregate", {"key": {"k": "k"}, "value": {"n": 5, "x": None}})
        told = r"so its state lacks them; .* such as 'x_again', with added=\{'x_again': history\}, .* dropped=\['x'\]"
        for changes in CallChanges(["x"], filled=["x"]), CallChanges():
            with pytest.raises(StateConflictError, match=told):
                life.start(calls, 2, changes)
        if edited:
            life.evolution = None
            with pytest.raises(StateConflictError, match=told):
                life.start(calls, 2, CallChanges(["x"], filled=["x"]))
            life.evolution = Evolution("/c")
        life.start({"n": "rows", "x_again": "sum"}, 2, CallChanges(["x_again"], {}, ["x"], ["x_again"]))
        life.run(second, random)
        found = [(row["n"], row["x_again"]) for row in stored(life.made, 2, life.keeper)]
    assert found == [(8 if edited else 4, 7)]
