"""Verbs that begin with the rows of others, by another key or as another kind, answer as if they had had them all.

The oracle is the new verb itself over the same micro-batches from the beginning: from the change on both answer alike.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from millpond.adapters.spark.evolution.evolution import Evolution, Whereabouts, generation_at, generation_of
from millpond.adapters.spark.evolution.rekeyed import NewVerb
from millpond.adapters.spark.evolution.verb_evolution import VerbEvolution
from millpond.adapters.spark.session.checkpoint import Checkpoint
from millpond.errors import ConfigurationError, MillpondError, StateConflictError
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.table_join import make_table_join
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.readings import Packing
from millpond.processors.calls.tables import Rows
from millpond.processors.calls.waiting import stream_join_account
from millpond.processors.distribution.plan import Plan, make_plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import JoinType, Side
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.joins.stream_join import stream_join
from millpond.processors.verbs.rekeying.rekeying import NewInput
from millpond.processors.verbs.verb import INSTANT as TIME
from millpond.processors.verbs.verb import PackedRows
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.schema_log import Beside, keep_schemas
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.evolution.evolving import Target, Work
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import Declared
from millpond.stores.evolution.record import EvolutionRecord
from millpond.stores.evolution.seeding import Seeds
from millpond.stores.evolution.verbs.declarations import SaidOfVerbs, VerbOf
from tests.metamorphic.engine import Query
from tests.metamorphic.keeping import BackendKeeper, DurableKeeper

OWNER = "shop"
SECOND = 1_000_000
HISTORY = 30 * SECOND
PARTITIONS = 3
BEFORE, AFTER = 5, 4
"""So many micro-batches before the change, and after it."""

Tables = Mapping[str, Sequence[pa.Table]]


def schema(source: str, *, op: bool = False) -> pa.Schema:
    """Return the schema of a source; the columns that are keys are never null but ``n``."""
    fields: list[Any] = [pa.field(f"{source}{name}", pa.string(), nullable=name == "n") for name in "abn"]
    fields += [pa.field(f"{source}t", TIME), pa.field(f"{source}v", pa.int64())]
    return pa.schema([*fields, pa.field(f"{source}o", pa.string())] if op else fields)


LEFT, RIGHT, FEED = Rows.of("l", schema("l")), Rows.of("r", schema("r")), Rows.of("f", schema("f", op=True))


def batches(seed: int, *, step: int = 7, distinct: bool = True) -> Iterator[Tables]:
    """Yield micro-batches of all sources; time goes on by about so many seconds with each, and some rows are late."""
    random, number = Random(seed), 0
    for batch in range(BEFORE + AFTER):
        made: dict[str, list[pa.Table]] = {}
        for rows in (LEFT, RIGHT, FEED):
            of_source = []
            for _ in range(random.randrange(2, 9)):
                number += 1
                second = 1_000 + batch * step + random.randrange(-6, step)
                at = second * SECOND + (number if distinct else 0)
                values = {"a": random.choice("xyz"), "b": random.choice("12"), "v": number, "t": at}
                values |= {"n": random.choice(["p", "q", None]), "o": random.choice(["upsert", "upsert", "delete"])}
                of_source.append({name: values[name[1]] for name in rows.schema.names})
            made[rows.source] = [pa.Table.from_pylist(of_source, schema=rows.schema)]
        yield made


def joined(name: str, on: tuple[str, str], how: JoinType, before: int = 10) -> Made:
    """Return a join of streams whose sides have keys of other names."""
    windows = JoinWindows(before * SECOND, 8 * SECOND, 6 * SECOND, drop_late=True)
    keeps = {side: how.keeps(side) for side in Side}
    rest = [column for column in RIGHT.schema.names if column != on[1]]
    values = RIGHT.schema.names if keeps[Side.RIGHT] else rest
    one = LEFT.read("left", [on[0]], LEFT.schema.names, "lt", keyed=not keeps[Side.LEFT])
    other = RIGHT.read("right", [on[1]], values, "rt", keyed=not keeps[Side.RIGHT])
    inputs = (
        Packing().input(one, NullKeys.APART, untimed=how.keeps(Side.LEFT)),
        Packing().input(other, NullKeys.APART, untimed=how.keeps(Side.RIGHT)),
    )
    verb = stream_join(name, *inputs, how, windows, columns=rest, shared=dict([on]) if keeps[Side.RIGHT] else {})
    account = stream_join_account(name, how, windows, LEFT.time("lt"), RIGHT.time("rt"))
    return Made(verb, {"left": one, "right": other}, account)


def plan_of(made: Made) -> Plan:
    return make_plan(made.verb.topology, made.verb.name, PARTITIONS)


def given(made: Made, role: str) -> dict[str, str]:
    selection = made.selections[role]
    return {"time": selection.time, **({} if selection.op is None else {"op": selection.op})}


def schemas_of(made: Made) -> dict[str, Schemas]:
    """Return what a driver keeps beside the state of a verb."""
    found = {}
    for role, input_ in made.verb.inputs.items():
        prefix = "" if role == "input" else f"{role}_"
        found[Beside.KEY.place(role)] = Schemas.first(input_.keys.schema)
        found[Beside.TIME.place(role)] = Schemas.first(pa.schema([("time", input_.times)]))
        texts = [(f"{prefix}{name}={column}", pa.null()) for name, column in given(made, role).items()]
        found[Beside.EXPRESSIONS.place(role)] = Schemas.first(pa.schema(texts))
        if isinstance(input_, PackedRows):
            found[role] = input_.rows.schemas
    return found


def in_process(work: Work) -> list[Mapping[str, str]]:
    return list(map(work.run, range(work.units)))


@dataclass
class Job:
    """Verbs of an application, with a checkpoint that holds what they have committed.

    Attributes:
        place: where their files are.
        seed: of the rows.
    """

    place: Path
    seed: int = 1
    history: list[Tables] = field(default_factory=list)
    manifests: list[Manifest] = field(default_factory=list)
    location = "/c"

    def __post_init__(self) -> None:
        self.history = self.history or list(batches(self.seed))
        self.keeper = DurableKeeper(self.place, ("memory",), loses=False)
        self.storage = self.keeper.storage

    def ran(self, made: Made, *, noted: bool = True) -> None:
        """Note that a verb has had the micro-batches before the change; earlier releases noted nothing beside state."""
        application = made.verb.name
        History.of(self.storage, application, application.partition(".")[2]).begun(
            plan_of(made).fingerprint, shape_of(plan_of(made))
        )
        if noted:
            keep_schemas(self.storage, application, schemas_of(made))
        query = Query([made], [PARTITIONS], self.keeper, Random(self.seed))
        for tables in self.history[:BEFORE]:
            query.run(tables)
        self.manifests += self.keeper.committed_by(application)

    def held(self) -> tuple[int, Mapping[int, Collection[Manifest]]]:
        return BEFORE - 1, {0: self.manifests}

    def last(self) -> int:
        return BEFORE - 1

    def generation(
        self,
        made: Made,
        rekeyed: Mapping[str, str],
        *,
        accept_loss: bool = False,
        dropped: Collection[str] = (),
        run: Callable[[Work], list[Mapping[str, str]]] = in_process,
    ) -> EvolutionRecord | None:
        """Return what the driver records when a verb is called."""
        plan, name = plan_of(made), made.verb.name.partition(".")[2]
        inputs = {
            role: NewInput(input_, made.selections[role].keyed, given(made, role))
            for role, input_ in made.verb.inputs.items()
            if isinstance(input_, PackedRows)
        }
        evolution = VerbEvolution(
            VerbOf(OWNER, name, name),
            History.of(self.storage, made.verb.name, name),
            plan,
            Target(plan.fingerprint, shape_of(plan), Declared(accept_loss=accept_loss)),
            SaidOfVerbs(dropped=dropped, rekeyed=rekeyed),
            (),
            False,
            NewVerb(inputs, made.verb.follows_time, schemas_of(made)),
        )
        return evolution.generation(cast(Checkpoint, self), run)

    def answers(self, made: Made, record: EvolutionRecord) -> list[Any]:
        """Return the output of the verb after the change, micro-batch by micro-batch, and at the end of its inputs."""
        fingerprint = plan_of(made).fingerprint
        self.keeper.begin(made.verb.name, {t: replace(m, fingerprint=fingerprint) for t, m in record.bases.items()})
        return list(answered(Query([made], [PARTITIONS], self.keeper, Random(1)), self.history[BEFORE:]))

    def expected(self, made: Made) -> list[Any]:
        """Return the same of one that has had all micro-batches from the beginning."""
        with closing(BackendKeeper(self.place / "oracle", "memory")) as keeper:
            query = Query([made], [PARTITIONS], keeper, Random(2))
            for tables in self.history[:BEFORE]:
                query.run(tables)
            return list(answered(query, self.history[BEFORE:]))


def answered(query: Query, history: Sequence[Tables]) -> Iterator[Any]:
    for number, tables in enumerate([*history, {source: [] for source in history[0]}], 1):
        results = query.run(tables, complete=number > len(history))
        rows = [row for table in results for row in table.to_pylist()]
        yield Counter(frozenset((name, value) for name, value in row.items() if name != "sequence") for row in rows)


def latest_of(name: str, key: str | Sequence[str], rows: Rows = RIGHT, *, op: bool = False) -> Made:
    time = next(column for column in rows.schema.names if column.endswith("t"))
    return make_latest(f"{OWNER}.{name}", rows, key=key, time=time, history=HISTORY, op="fo" if op else None)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    with closing(job.keeper):
        yield job


L = LEFT.select("lb", "ln", "lt", "lv", k="la")
R = RIGHT.select("rb", "rn", "rt", "rv", k="ra")
"""The same rows with a key of one name, which may be null and never is."""


NULLS = LEFT.select("lb", "la", "lt", "lv", k="ln"), RIGHT.select("rb", "ra", "rt", "rv", k="rn")


def asof(name: str, how: JoinType = JoinType.INNER, *, grace: int | None = None) -> Made:
    return make_asof_join(f"{OWNER}.{name}", L, R, on="k", times=("lt", "rt"), history=HISTORY, how=how, grace=grace)


def tables(name: str, how: JoinType, history: int | None) -> Made:
    return make_table_join(f"{OWNER}.{name}", L, R, on="k", times=("lt", "rt"), how=how, history=history)


EXACT: dict[str, tuple[Callable[[], Made], Callable[[], Made], Mapping[str, str]]] = {
    "latest by fewer columns": (
        lambda: latest_of("old", ["ra", "rb"]), lambda: latest_of("new", "ra"), {"new": "old"},
    ),
    "latest by other columns in another order": (
        lambda: latest_of("old", ["fa", "fb"], FEED, op=True), lambda: latest_of("new", ["fb", "fa"], FEED, op=True),
        {"new": "old"},
    ),
    "inner stream join": (
        lambda: joined("shop.old", ("la", "ra"), JoinType.INNER),
        lambda: joined("shop.new", ("lb", "rb"), JoinType.INNER), {"new": "old"},
    ),
    "left stream join": (
        lambda: joined("shop.old", ("la", "ra"), JoinType.LEFT),
        lambda: joined("shop.new", ("lb", "rb"), JoinType.LEFT), {"new": "old"},
    ),
    "inner stream join that becomes a right one": (
        lambda: joined("shop.old", ("la", "ra"), JoinType.INNER),
        lambda: joined("shop.new", ("ln", "rn"), JoinType.RIGHT), {"new": "old"},
    ),
    "inner stream join that becomes an outer one": (
        lambda: joined("shop.old", ("la", "ra"), JoinType.INNER),
        lambda: joined("shop.new", ("ln", "rn"), JoinType.OUTER), {"new": "old"},
    ),
    "latest that becomes a side of an as-of join": (
        lambda: latest_of("old", ["k", "rb"], R), lambda: asof("new", JoinType.LEFT), {"new.right": "old"},
    ),
    "latest by fewer columns that may be null": (
        lambda: latest_of("old", ["rn", "ra"]), lambda: latest_of("new", "rn"), {"new": "old"},
    ),
    "latest whose null keys are left out as a side of an as-of join": (
        lambda: latest_of("old", ["k", "rb"], NULLS[1]),
        lambda: make_asof_join("shop.new", *NULLS, on="k", times=("lt", "rt"), history=HISTORY), {"new.right": "old"},
    ),
    "side of an as-of join that becomes latest": (
        lambda: asof("old"), lambda: latest_of("new", "k", R), {"new": "old.right"},
    ),
    "as-of join with rows that wait": (
        lambda: asof("old", grace=8 * SECOND), lambda: asof("new", JoinType.LEFT, grace=8 * SECOND), {"new": "old"},
    ),
    "table join of another type": (
        lambda: tables("old", JoinType.INNER, HISTORY), lambda: tables("new", JoinType.OUTER, HISTORY), {"new": "old"},
    ),
    "table join without a history, of another type": (
        lambda: tables("old", JoinType.LEFT, None), lambda: tables("new", JoinType.INNER, None), {"new": "old"},
    ),
    "sides of a table join that become an as-of join": (
        lambda: tables("old", JoinType.INNER, HISTORY), lambda: asof("new"), {"new.right": "old.right"},
    ),
}  # fmt: skip


def keys_of_sides(old: Made) -> list[str]:
    """Return the columns of the input keys that may be null as far as is known, if the verb leaves such rows out."""
    selections = old.selections.items()
    return [name for role, one in selections if role != "input" for name in one.keys]


def mixed() -> pa.Schema:
    return pa.schema([*RIGHT.schema, *LEFT.schema.remove(0).remove(0)])


def with_op() -> Made:
    rows = Rows.of("r", RIGHT.schema)
    return make_latest("shop.new", rows, key="ra", time="rt", history=HISTORY, op="rn")


def ordered() -> Made:
    return make_latest("shop.new", RIGHT, key="ra", time="rt", history=HISTORY, order="rv")


@pytest.mark.parametrize("case", EXACT)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_verb_by_another_key_answers_as_one_that_has_had_all_rows(tmp_path: Path, case: str, seed: int) -> None:
    old, new, rekeyed = (EXACT[case][0](), EXACT[case][1](), EXACT[case][2])
    job = Job(tmp_path, seed)
    with closing(job.keeper):
        job.ran(old)
        record = job.generation(new, rekeyed, accept_loss="k" in keys_of_sides(old))
        assert record is not None
        assert job.generation(new, rekeyed) is None
        answers = job.answers(new, record)
        assert answers == job.expected(new)
        assert sum(map(len, answers))


def test_two_verbs_become_the_sides_of_a_join_of_tables(job: Job) -> None:
    job.ran(latest_of("lefts", ["k", "lb"], L))
    job.ran(latest_of("rights", ["k", "rb"], R))
    new = tables("new", JoinType.OUTER, HISTORY)
    record = job.generation(new, {"new.left": "lefts", "new.right": "rights"})
    assert record is not None
    assert job.answers(new, record) == job.expected(new)


def test_a_verb_that_has_kept_nothing_yet_has_no_rows_to_begin_with(job: Job) -> None:
    """Its left rows have met nothing, and nobody has kept the schemas of right ones."""
    job.history = [{**tables, "r": []} for tables in job.history[:BEFORE]] + job.history[BEFORE:]
    job.ran(asof("old"))
    new = latest_of("new", "k", R)
    record = job.generation(new, {"new": "old.right"})
    assert record is not None
    assert (record.bases, set(record.seeded)) == ({}, {"latest"})
    assert job.generation(new, {"new": "old.right"}) is None
    assert job.answers(new, record) == job.expected(new)


def test_who_dies_before_the_record_begins_anew(job: Job) -> None:
    job.ran(latest_of("old", ["ra", "rb"]))
    new = latest_of("new", "ra")

    def dying(work: Work) -> list[Mapping[str, str]]:
        in_process(work)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.generation(new, {"new": "old"}, run=dying)
    assert History.of(job.storage, "shop.new", "new").newest is None
    record = job.generation(new, {"new": "old"})
    assert record is not None
    assert (record.generation, set(record.seeded)) == (1, {"latest"})
    assert job.answers(new, record) == job.expected(new)


def refused(job: Job, new: Made, rekeyed: Mapping[str, str], error: type[MillpondError] = StateConflictError) -> str:
    with pytest.raises(error) as found:
        job.generation(new, rekeyed)
    return found.value.sentence


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (lambda: latest_of("old", "ra"), lambda: latest_of("new", "rb"), "a later one of the same ra has replaced"),
        (
            lambda: latest_of("old", ["fa", "fb"], FEED, op=True), lambda: latest_of("new", "fa", FEED, op=True),
            "deletes that are older than the history",
        ),
        (
            lambda: joined("shop.old", ("ln", "rn"), JoinType.INNER),
            lambda: joined("shop.new", ("la", "ra"), JoinType.INNER), "rows with a null in ln",
        ),
        (lambda: tables("old", JoinType.INNER, None), lambda: tables("new", JoinType.INNER, HISTORY), "one row"),
        (
            lambda: make_latest("shop.old", RIGHT, key="ra", time="rt", history=HISTORY, ttl=20 * SECOND),
            lambda: latest_of("new", "ra"), "rows whose ttl is over",
        ),
    ],
)  # fmt: skip
def test_rows_that_may_not_be_there_are_told_and_nothing_is_done_unless_that_is_accepted(
    job: Job, old: Callable[[], Made], new: Callable[[], Made], what: str
) -> None:
    job.ran(old())
    told = refused(job, new(), {"new": "old"})
    assert what in told
    assert "pond.backfill()" in told
    assert not list(job.storage.list("shop.new"))
    record = job.generation(new(), {"new": "old"}, accept_loss=True)
    assert record is not None
    assert record.bases
    assert sum(map(len, job.answers(new(), record)))


def test_rows_of_one_key_and_time_are_counted_before_one_of_them_counts(tmp_path: Path) -> None:
    job = Job(tmp_path, history=list(batches(1, distinct=False)))
    with closing(job.keeper):
        job.ran(latest_of("old", ["ra", "rb"]))
        new = latest_of("new", "ra")
        assert re.search(r"which of [1-9]\d* rows comes last", refused(job, new, {"new": "old"}))
        assert not list(job.storage.list("shop.new"))
        assert job.generation(new, {"new": "old"}, accept_loss=True) is not None


def test_rows_are_not_those_of_a_verb_that_reads_others(job: Job) -> None:
    job.ran(latest_of("old", ["ra", "rb"]))
    job.ran(make_aggregate("shop.sums", RIGHT, {"n": aggregates.count()}, by="ra", time="rt"))
    job.ran(joined("shop.near", ("la", "ra"), JoinType.INNER))
    sums = make_aggregate("shop.new", RIGHT, {"n": aggregates.count()}, by="rb", time="rt")
    assert "which keeps no rows that others can begin with" in refused(job, sums, {"new": "old"})
    for how in (JoinType.SEMI, JoinType.ANTI):
        once = joined(f"shop.{how.value}", ("la", "ra"), how)
        assert "which keeps no rows that others can begin with" in refused(job, once, {how.value: "near"})
        job.ran(once)
        near = joined("shop.other", ("lb", "rb"), JoinType.INNER)
        assert "which keeps no rows that others can begin with" in refused(job, near, {"other": how.value})
    assert "the rows of 'sums', which keeps no rows that others can begin with" in refused(
        job, latest_of("new", "rb"), {"new": "sums"}
    )
    assert "no column 'ln', 'lt'" in refused(job, latest_of("new", "ra", Rows.of("x", mixed())), {"new": "old"})
    other = Rows.of("r", RIGHT.schema.set(4, pa.field("rv", pa.string())))
    assert "where 'rv' is int64, and not string; cast it" in refused(job, latest_of("new", "ra", other), {"new": "old"})
    late = make_latest(
        "shop.new", Rows.of("r", RIGHT.schema.append(pa.field("rt2", TIME))), key="ra", time="rt2", history=1
    )
    assert "no column 'rt2'" in refused(job, late, {"new": "old"})
    assert "keeps of 'left' the rows that may still meet others" in refused(
        job, latest_of("new", "la", LEFT), {"new": "near.left"}
    )
    assert "write the old windows again" in refused(
        job, joined("shop.new", ("lb", "rb"), JoinType.INNER, 20), {"new": "near"}
    )
    assert "put with op=None, and not op=" in refused(job, with_op(), {"new": "old"})
    assert "an order decides" in refused(job, ordered(), {"new": "old"})


def of_another_type() -> Made:
    rows = Rows.of("r", RIGHT.schema.set(RIGHT.schema.get_field_index("rv"), pa.field("rv", pa.string())))
    return latest_of("new", "ra", rows)


def of_another_time() -> Made:
    made = latest_of("new", "ra")
    inputs = {role: replace(one, times=pa.timestamp("us")) for role, one in made.verb.inputs.items()}
    return replace(made, verb=replace(made.verb, inputs=inputs))


def near(name: str, on: tuple[str, str], before: int = 10) -> Made:
    return joined(f"{OWNER}.{name}", on, JoinType.INNER, before)


@pytest.mark.parametrize(
    ("old", "wrong", "said", "right"),
    [
        (
            lambda: latest_of("old", ["ra", "rb"]), lambda: latest_of("new", "ra", Rows.of("x", mixed())),
            r"'ln', 'lt', 'lv', only .*; leave these out of the new verb's input", lambda: latest_of("new", "ra"),
        ),
        (
            lambda: latest_of("old", ["ra", "rb"]), of_another_type, "where 'rv' is int64, and not string; cast it to",
            lambda: latest_of("new", "ra"),
        ),
        (
            lambda: latest_of("old", ["ra", "rb"]), of_another_time, "cast the new verb's time to timestamp.*UTC",
            lambda: latest_of("new", "ra"),
        ),
        (
            lambda: latest_of("old", ["ra", "rb"]), with_op, "put with op=None, and not op=rn; give the new verb the",
            lambda: latest_of("new", "ra"),
        ),
        (
            lambda: near("old", ("la", "ra")), lambda: near("new", ("lb", "rb"), 20), "write the old windows again",
            lambda: near("new", ("lb", "rb")),
        ),
    ],
)  # fmt: skip
def test_what_is_advised_for_rows_that_do_not_fit_is_taken(
    job: Job, old: Callable[[], Made], wrong: Callable[[], Made], said: str, right: Callable[[], Made]
) -> None:
    job.ran(old())
    assert re.search(said, refused(job, wrong(), {"new": "old"}))
    record = job.generation(right(), {"new": "old"})
    assert record is not None
    assert job.answers(right(), record) == job.expected(right())


def test_what_is_advised_for_verbs_that_rekeyed_cannot_mean_is_taken(job: Job) -> None:
    old, begun, new = latest_of("old", ["ra", "rb"]), latest_of("begun", "ra"), latest_of("new", "ra")
    job.ran(old, noted=False)
    job.ran(begun)
    assert "holds no state, only that of 'begun', 'old'; name the verb as it was" in refused(job, new, {"new": "odl"})
    assert "start it once as it was, with this release" in refused(job, new, {"new": "old"})
    keep_schemas(job.storage, "shop.old", schemas_of(old))
    assert "give it another name, under which it begins anew, and drop this one" in refused(
        job, begun, {"begun": "old"}
    )
    record = job.generation(new, {"new": "old"}, dropped=["begun"])
    assert record is not None
    assert job.answers(new, record) == job.expected(new)


def test_declarations_that_name_no_rows_are_refused_with_what_there_is(job: Job) -> None:
    job.ran(latest_of("old", ["k", "rb"], R))
    assert "rekeyed names the verb 'odl'" in refused(job, latest_of("new", "k", R), {"new": "odl"})
    told = refused(job, asof("new"), {"new": "old"}, ConfigurationError)
    assert "so say which is which, such as rekeyed={'new.right': 'old'}" in told
    record = job.generation(asof("new"), {"new.right": "old"})
    assert record is not None
    assert job.answers(asof("new"), record) == job.expected(asof("new"))
    begun = latest_of("begun", "k", R)
    job.ran(begun)
    assert "has begun without them" in refused(job, begun, {"begun": "old"})
    for rekeyed, said in (
        ({"old": "old"}, "which is itself"),
        ({"new": "old", "new.right": "old"}, "and its side 'new.right'"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            SaidOfVerbs(rekeyed=rekeyed)
    with pytest.raises(ConfigurationError, match="renamed or dropped as well"):
        SaidOfVerbs({"old": "other"}, rekeyed={"new": "old"})
    with pytest.raises(ConfigurationError, match="rekeyed says that others begin with its rows"):
        SaidOfVerbs(rekeyed={"new": "old"}).former_of_asked("old")


def test_a_topology_has_no_rows_of_another_verb_and_begins_with_seeds_instead(job: Job) -> None:
    plan, history = plan_of(latest_of("new", "ra")), History.of(job.storage, "app", "out")
    with pytest.raises(ConfigurationError, match=r"and this is a topology; leave it out, and give new stores seed"):
        generation_of(cast(Any, None), history, plan, Evolution("/c", rekeyed={"new": "old"}), {})
    record = generation_of(cast(Any, None), history, plan, Evolution("/c"), {})
    assert (record.fingerprint, record.shape) == (plan.fingerprint, shape_of(plan))
    nowhere = Whereabouts(None, None, in_process)
    stores = frozenset(store.name for store in record.shape.stores)
    base = Manifest.empty("app", "0_0", "seeded")
    record = generation_at(nowhere, history, plan, Evolution("/c"), Seeds(stores, lambda sowing: {"0_0": base}))
    assert (record.seeded, record.bases) == (stores, {"0_0": base})
