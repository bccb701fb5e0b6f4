"""The calls of an aggregate change at restarts: what is added begins empty, or is true since a time; all else goes on.

That holds whatever the windows.

The oracle is plain Python: of each call it knows since when it is there, and folds the rows that have come since then;
if it is true since a time, those of that time and later, and it has nothing to say of windows that begin before.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from random import Random
from statistics import pvariance
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import StateConflictError
from millpond.processors import SessionWindows, SlidingWindows, TimeWindows
from millpond.processors.calls.aggregate import Binding, make_aggregate
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.rows.sink_rows import PartRows
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.encoding.state_serde import Slots
from millpond.processors.verbs.kept_calls import CallChanges, Calls, evolved_calls, first_calls, since_in, slots_of
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.stores.encoding.rows import msgpack_columns
from millpond.stores.encoding.rows.schemas import Schemas
from tests.metamorphic import oracle
from tests.metamorphic.checking import event, frozen, histories, own, schema
from tests.metamorphic.engine import Query
from tests.metamorphic.histories import BACKENDS, SECOND, Event, Way, current, cut, tables
from tests.metamorphic.histories import Chain as Verbs
from tests.metamorphic.histories import rows_of as rows_in
from tests.metamorphic.keeping import BackendKeeper, DurableKeeper, Keeper
from tests.metamorphic.operators import OperatedQuery, Place
from tests.metamorphic.oracle import Row

SOURCE = schema("a")
LONG = 10**9
KEYS = [None, "", *"abcdefgh"]
"""So many that some get no row for several runs."""


def _present(rows: Sequence[Row]) -> list[Any]:
    return [row["av"] for row in rows if row["av"] is not None]


FUNCTIONS: dict[str, tuple[AggregateCall, Callable[[Sequence[Row]], Any]]] = {
    "rows": (aggregates.count(), len),
    "count": (aggregates.count("av"), lambda rows: len(_present(rows))),
    "sum": (aggregates.sum("av"), lambda rows: sum(_present(rows)) if _present(rows) else None),
    "avg": (
        aggregates.avg("av"),
        lambda rows: sum(_present(rows)) / len(_present(rows)) if _present(rows) else None,
    ),
    "max": (aggregates.max("av"), lambda rows: max(_present(rows), default=None)),
    "last": (aggregates.last("av"), lambda rows: rows[-1]["av"] if rows else None),
    "collect": (aggregates.collect("av"), lambda rows: tuple(_present(rows))),
    "early": (aggregates.collect("av", limit=2), lambda rows: tuple(_present(rows)[:2])),
    "different": (aggregates.collect("av", distinct=True), lambda rows: tuple(dict.fromkeys(_present(rows)))),
    "some": (aggregates.count(where="av"), lambda rows: len(_present(rows))),
    "last some": (aggregates.last("av", where="av"), lambda rows: (_present(rows) or [None])[-1]),
    "variance": (
        aggregates.var_pop("av"),
        lambda rows: float(pvariance(map(Fraction, _present(rows)))) if _present(rows) else None,
    ),
    "covariance": (
        aggregates.covar_pop("av", "av"),
        lambda rows: float(pvariance(map(Fraction, _present(rows)))) if _present(rows) else None,
    ),
    "distinct": (aggregates.count_distinct("av"), lambda rows: len(set(_present(rows)))),
}
"""Calls, and what they answer of rows in the order of time."""

KINDS: dict[str, tuple[Any, oracle.Cutting | None, Any, int]] = {
    "key": (None, None, None, 0),
    "tumbling": (TimeWindows(7_000, grace=LONG), oracle.tumbling(7 * SECOND), oracle.holds, 0),
    "hopping": (
        TimeWindows(10_000, advance=3_000, grace=LONG), oracle.tumbling(10 * SECOND, 3 * SECOND), oracle.holds, 0,
    ),
    "sliding": (SlidingWindows(5_000, grace=LONG), oracle.sliding(5 * SECOND), oracle.holds_end, 0),
    "session": (SessionWindows(4_000, grace=LONG), oracle.sessions(4 * SECOND), oracle.holds_end, 4 * SECOND),
}  # fmt: skip


def types_of(calls: Mapping[str, AggregateCall]) -> dict[str, pa.DataType]:
    """Return the types of what rows bring for calls."""
    number, wrapped = pa.int64(), pa.struct([("value", pa.int64())])
    types = {name: wrapped if call.wraps else number for name, call in calls.items() if call.takes_values}
    pair = pa.struct([("first", number), ("second", number)])
    return {name: type_ if calls[name].second is None else pair for name, type_ in types.items()}


def kept_of(bound: RowAggregate, calls: Mapping[str, AggregateCall]) -> Calls:
    """Return calls as they are kept with their state."""
    return bound.kept(
        {name: str(call.column) for name, call in calls.items() if call.column is not None},
        {name: str(call.where) for name, call in calls.items() if call.where is not None},
        {name: str(call.second) for name, call in calls.items() if call.second is not None},
    )


def bound_to(slots: Slots | None, since: Mapping[str, int] | None = None) -> Binding:
    """Binds calls to these places of their states."""
    return lambda bind: bind(slots=slots, since=since)


@dataclass
class Life:
    """The calls of a state, as a driver keeps them, and since which run each is there.

    Attributes:
        functions: by result, which of ``FUNCTIONS``.
        since: by result, the first run of it.
        times: by result, the time since which it is true, if one was said.
        kept: the history of the calls.
        name: of the serde.
    """

    functions: dict[str, str]
    since: dict[str, int] = field(default_factory=dict)
    times: dict[str, int | None] = field(default_factory=dict)
    kept: Schemas | None = None
    name: str = ""

    @property
    def calls(self) -> dict[str, AggregateCall]:
        return {name: FUNCTIONS[one][0] for name, one in self.functions.items()}

    def restart(self, changes: CallChanges) -> Slots:
        """Do what a driver does when it builds the query."""
        calls = self.calls
        changes.check(calls, "out")
        first = RowAggregate(calls, types_of(calls))
        wanted = kept_of(first, calls)
        if self.kept is None:
            self.name, history = first.state_serde.name, Schemas.first(first_calls(wanted))
        else:
            history = evolved_calls(self.kept, wanted, changes, "out")
        self.kept = Schemas.from_json(history.to_json())
        return slots_of(self.kept, self.name)

    def change(self, run: int, random: Random, reached: int) -> CallChanges:
        """Change some of the calls from this run on, or since a time after the one that has been reached."""
        before = dict(self.functions)
        dropped = [name for name in before if random.random() < 0.4]
        for name in dropped:
            del self.functions[name], self.since[name]
        renamed = {}
        for old in [name for name in self.functions if random.random() < 0.3]:
            new = f"{old}'"
            if new not in before:
                renamed[old] = new
                self.times[new] = self.times.pop(old, None)
                self.functions[new], self.since[new] = self.functions.pop(old), self.since.pop(old)
        gone = {*dropped, *renamed}
        free = [f"r{number}" for number in range(5) if f"r{number}" not in {*self.functions, *gone}]
        added = random.sample(free, min(len(free), random.choice([0, 1, 2] if self.functions else [1])))
        for name in added:
            self.functions[name], self.since[name] = random.choice(sorted(FUNCTIONS)), run
            self.times[name] = random.choice([None, max((1_000 + random.randint(-1, 42)) * SECOND, reached + 1)])
        order = sorted(self.functions, key=lambda name: random.random())
        self.functions = {name: self.functions[name] for name in order}
        return CallChanges({name: self.times[name] for name in added}, renamed, dropped)

    def results(self, rows: Sequence[tuple[Row, int]], start: int | None) -> dict[str, Any]:
        """Return what the calls answer of rows in the order of time, each with the run in which it came.

        Args:
            rows: those of a key, or of a window.
            start: of the window.
        """
        return {name: self._result(name, rows, start) for name in self.functions}

    def _result(self, name: str, rows: Sequence[tuple[Row, int]], start: int | None) -> Any:
        time = self.times.get(name)
        if time is not None and start is not None and start < time:
            return None
        counted = [row for row, run in rows if run >= self.since[name] and (time is None or int(row["at"]) >= time)]
        return FUNCTIONS[self.functions[name]][1](counted)


def expected(life: Life, come: Sequence[tuple[Row, int]], kind: str) -> dict[Any, dict[str, Any]]:
    """Return the table, by key and window."""
    _, cutting, within, shown = KINDS[kind]
    ordered = sorted(come, key=lambda one: int(one[0]["at"]))
    groups: dict[tuple[Any, ...], list[tuple[Row, int]]]
    if cutting is None:
        groups = {(row["k"],): [one for one in ordered if one[0]["k"] == row["k"]] for row, _ in come}
    else:
        windows = oracle.by_window([row for row, _ in come], "k", "at", cutting, within)
        groups = {
            (key, (start, end + shown)): [
                one for one in ordered if one[0]["k"] == key and within((start, end), one[0]["at"])
            ]
            for key, (start, end) in windows
        }
    names = ["k", "window"]
    return {
        key: {
            **dict(zip(names, key, strict=False)),
            **life.results(rows, key[1][0] if len(key) > 1 else None),
            "change_time": max(row["at"] for row, _ in rows),
        }
        for key, rows in groups.items()
    }


def stored(made: Made, partitions: int, keeper: Keeper) -> list[Row]:
    """Return the rows of the store, as they are shown."""
    running = Query([made], [partitions], keeper, Random(0))._verbs[0]
    (part,) = running.plan.stages[0]
    parts = made.verb.stores["aggregate"]
    shown, found = PartRows(parts, pa.schema([one for some in parts for one in some.schema])), list[Row]()
    for partition in range(partitions):
        with keeper.task(f"{made.verb.name}/{part.index}_{partition}", part, running.plan) as stores:
            store, kind = stores["aggregate"], part.stores["aggregate"].kind
            read = list(store.fetch_keys() if kind.in_segments else store.scan())
            entries = [(key, one.value, one.timestamp) if kind.stamped else (key, one, None) for key, one in read]
        if entries:
            found += rows_in(shown.to_table(Batch(*map(list, zip(*entries, strict=True)))))
    keeper.commit()
    return found


def live(kind: str, seed: int, backend: str | None, first: dict[str, str], runs: int) -> None:
    """Run a query whose calls change between runs; in each a part of the rows comes, the earliest or not."""
    random = Random(seed)
    final = kind != "key" and random.random() < 0.3
    places = random.sample([(key, second) for key in KEYS for second in range(41)], random.randint(4, 30))
    values = [None, *range(10)]
    events = [event("a", key, second, random.choice(values), "", with_op=False) for key, second in places]
    life, partitions = Life(dict(first), dict.fromkeys(first, 0)), random.choice([1, 2])
    come: list[tuple[Row, int]] = []
    cuts = sorted(random.randint(0, len(events)) for _ in range(runs - 1))
    with TemporaryDirectory() as place, closing(keeper_of(Path(place), backend, seed)) as keeper:
        batch = 0
        for run, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(events)], strict=True)):
            clock = max((int(row["at"]) for row, _ in come if kind != "key"), default=0)
            changes = CallChanges() if run == 0 else life.change(run, random, clock)
            slots = life.restart(changes)
            assert life.kept is not None
            made = make_aggregate(
                "out", Rows.of("a", SOURCE), life.calls, by="k", time="at", window=KINDS[kind][0], final=final,
                binding=bound_to(slots, since_in(life.kept.current)),
            )  # fmt: skip
            keeper.restart()
            query = Query([made], [partitions], keeper, random)
            query._batch = batch
            out: list[Row] = []
            for some in cut(events[start:stop], Way(seed, random.randint(1, 3), 2, (partitions,)), random):
                deaths = [random.randint(0, 2)] if random.random() < 0.3 else []
                verbs = Verbs([made], {"a": SOURCE}, {"a": "at"})
                for table in query.run(tables(verbs, some, 2, random), deaths=deaths):
                    out += rows_in(table)
                come += [(row, run) for row in own(some, "a")]
                batch += 1
            whole = expected(life, come, kind)
            found = stored(made, partitions, keeper)
            without = {"change_time"} if kind == "session" else set()
            kept = [{name: one for name, one in row.items() if name not in without} for row in whole.values()]
            assert Counter(map(frozen, found)) == Counter(map(frozen, kept))
            names = ["k"] if kind == "key" else ["k", "window"]
            assert made.verb.schema.names[len(names) :][: len(life.functions)] == list(life.functions)
            for key, row in current(out, names).items():
                assert frozen(row) == frozen(whole[key])


def keeper_of(place: Path, backend: str | None, seed: int) -> Keeper:
    if backend is not None:
        return BackendKeeper(place, backend)
    return DurableKeeper(place, BACKENDS, loses=bool(seed % 2))


@pytest.mark.parametrize("few", [1, 1_000_000])
@pytest.mark.parametrize("kind", sorted(KINDS))
@histories(10)
@given(
    st.integers(0, 1 << 32),
    st.sampled_from(["memory", "memory", "memory", "lmdb", "rocksdb", None]),
    st.dictionaries(st.sampled_from(["r0", "r1", "r2"]), st.sampled_from(sorted(FUNCTIONS)), min_size=1),
    st.integers(3, 6),
)
def test_calls_change_between_runs(
    kind: str, few: int, seed: int, backend: str | None, first: dict[str, str], runs: int
) -> None:
    """Rows are read as columns, as many are, or one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(msgpack_columns, "FEW", few)
        patch.setattr("millpond.stores.encoding.rows.row_columns.FEW", few)
        live(kind, seed, backend, first, runs)


@pytest.mark.parametrize("kind", ["tumbling", "session"])
def test_a_time_that_rows_have_reached_is_refused_with_the_earliest_that_is_free(kind: str, tmp_path: Path) -> None:
    """Rows are in windows; what is advised is taken, and later rows change nothing about it."""
    life = Life({"n": "rows"}, {"n": 0})

    def run(changes: CallChanges, second: int) -> list[Row]:
        slots = life.restart(changes)
        assert life.kept is not None
        made = make_aggregate(
            "out", Rows.of("a", SOURCE), life.calls, by="k", time="at", window=KINDS[kind][0],
            binding=bound_to(slots, since_in(life.kept.current)),
        )  # fmt: skip
        with closing(BackendKeeper(tmp_path, "lmdb")) as keeper:
            query, verbs = Query([made], [1], keeper, Random(0)), Verbs([made], {"a": SOURCE}, {"a": "at"})
            row = event("a", "k", second, 3, "", with_op=False)
            told = [one for table in query.run(tables(verbs, [row], 1, Random(0))) for one in rows_in(table)]
            return [one for one in told if one["op"] == "upsert"]

    run(CallChanges(), 5)
    life.functions = {"n": "rows", "s": "sum"}
    told = (
        r"'s' .*true since .*16:45.*come up to .*16:45.*free is '1970-01-01T00:16:45.000001\+00:00'.*'s_2', with added"
    )
    with pytest.raises(StateConflictError, match=told):
        run(CallChanges({"s": 1_005 * SECOND}), 30)
    life.functions = {"n": "rows", "s_2": "sum"}
    advised = CallChanges({"s_2": 1_005 * SECOND + 1}, dropped=["s"])
    assert [(row["n"], row["s_2"]) for row in run(advised, 6)] == [(2, None)]
    assert [(row["n"], row["s_2"]) for row in run(advised, 30)] == [(1, 3)]
    assert [(row["n"], row["s_2"]) for row in run(advised, 30)] == [(2, 6)]


def test_calls_behind_a_shared_operator_change_as_others_do() -> None:
    """The same rows, behind a ``latest`` whose operator is shared or not."""
    events = [
        Event("a", (1_000 + n) * SECOND, {"k": f"k{n % 3}", "at": (1_000 + n) * SECOND, "av": n}) for n in range(12)
    ]
    answers = []
    for shared in (False, True):
        life, out = Life({"n": "rows", "s": "sum"}, {"n": 0, "s": 0}), list[Row]()
        with TemporaryDirectory() as directory:
            place = Place(Path(directory), ["lmdb"])
            for run in range(2):
                changes = CallChanges()
                if run:
                    life.functions = {"most": "max", "total": "sum"}
                    changes = CallChanges(["most"], {"s": "total"}, ["n"])
                table = make_latest("table", Rows.of("a", SOURCE), key="k", time="at", history=LONG)
                made = make_aggregate(
                    "out", table.rows, life.calls, by="k", time="change_time", binding=bound_to(life.restart(changes))
                )
                query = OperatedQuery([table, made], [2, 2], place, Random(run), shared=shared)
                verbs = Verbs([table, made], {"a": SOURCE}, {"a": "at"})
                for found in query.run(tables(verbs, events[run * 6 : run * 6 + 6], 1, Random(0))):
                    out += rows_in(found)
        answers.append(Counter(map(frozen, out[-3:])))
    whole = {(f"k{number}", number + 9, 4 * number + 18) for number in range(3)}
    assert answers[0] == answers[1]
    assert {tuple(dict(row)[name] for name in ("k", "most", "total")) for row in answers[0]} == whole
