"""Windows of a running aggregate are others from some time on: old ones end as they began, new ones begin then.

The oracle is plain Python: a window begins under the length of its time, and a row counts in each that has not closed
by what earlier micro-batches have shown.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.adapters.edit import StateEditor
from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors import CumulativeWindows, SessionWindows, SlidingWindows, TimeWindows
from millpond.processors.aggregations.windowed_processor import WindowedProcessor
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.arguments import (
    until_in_micros,
)
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.distribution.plan import Plan, make_plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.options.changed_windows import ChangedWindows
from millpond.processors.runtime.waiting_counts import counted_at, waiting_of
from millpond.processors.verbs.aggregate import Windows, changed_windows
from millpond.processors.verbs.kept_calls import CallChanges
from millpond.processors.verbs.rekeying.carriages import CARRIAGES
from millpond.stores.durability import Manifest
from millpond.stores.durability.manifests.claim import GENERATION_MARK
from millpond.stores.evolution.carrying import carry_unit, units
from millpond.stores.evolution.matching import Declared, check_terms, origins_of
from tests.metamorphic.calendars import STEP, held_by, stretched
from tests.metamorphic.checking import event, histories, own, schema
from tests.metamorphic.engine import Query
from tests.metamorphic.histories import BACKENDS, SECOND, Event, Way, current, cut, rows_of, tables
from tests.metamorphic.histories import Chain as Verbs
from tests.metamorphic.keeping import BackendKeeper, DurableKeeper, Keeper
from tests.metamorphic.oracle import Row
from tests.metamorphic.stopped import StoppedKeeper, schemas_of
from tests.metamorphic.test_changed_calls import Life, bound_to, keeper_of, stored

SOURCE = schema("a")
MILLI = 1_000
LONG = 10**9
KINDS = ["tumbling", "hopping", "offset", "calendar", "session", "cut session", "session of the calendar", "cumulative"]
CALENDARS = [
    TimeWindows("1 day", zone="America/New_York"),
    TimeWindows("1 day", zone="Europe/Berlin"),
    TimeWindows("1 week", zone="America/New_York"),
    TimeWindows("1 week", zone="Australia/Lord_Howe", week_start="sunday"),
    TimeWindows("1 month", zone="Asia/Kathmandu"),
    TimeWindows("1 month", zone="UTC"),
    TimeWindows("3 months", zone="Europe/Berlin"),
    TimeWindows("1 year", zone="Pacific/Auckland"),
    TimeWindows("18 hours", advance="9 hours", offset="1 hour 30 minutes"),
]
"""Windows of the calendar, and some that become such."""

OF_THE_CALENDAR = [
    SessionWindows("15 hours", max_length="1 day", zone="America/New_York"),
    SessionWindows("5 hours", max_length="1 day", zone="Europe/Berlin"),
    SessionWindows("2 days", max_length="1 week", zone="Australia/Lord_Howe", week_start="sunday"),
    SessionWindows("5 hours", max_length="18 hours", offset="1 hour 30 minutes"),
]
"""Sessions that are cut where the calendar says, and some that become such."""

Come = list[tuple[Row, int, int]]
"""Each row, the run in which it came, and the newest time that micro-batches before its own have shown."""


@dataclass(frozen=True)
class Eras:
    """Windows, each until some time; the last one for ever."""

    windows: Sequence[Any]
    until: Sequence[int] = ()

    @property
    def changes(self) -> dict[int, Windows]:
        return dict(zip(self.until, self.windows, strict=False))

    def made(self, life: Life, changes: CallChanges, final: bool) -> Made:
        return make_aggregate(
            "out", Rows.of("a", SOURCE), life.calls, by="k", time="at", window=self.windows[-1], until=self.changes,
            final=final, binding=bound_to(life.restart(changes)),
        )  # fmt: skip

    def _each(self) -> list[tuple[Any, int, int]]:
        bounds = [-(1 << 60), *self.until, 1 << 60]
        return list(zip(self.windows, bounds, bounds[1:], strict=False))

    def groups(self, come: Come) -> tuple[dict[tuple[Any, tuple[int, int]], Come], int]:
        """Return the rows of each key and window as it is shown, and how many rows were late for one."""
        found: dict[tuple[Any, tuple[int, int]], Come] = {}
        late = 0
        for windows, first, end in self._each():
            if isinstance(windows, SessionWindows):
                _sessions([one for one in come if first <= one[0]["at"] < end], windows, found)
        for one in come:
            row, _, clock = one
            missed = False
            for windows, first, end in self._each():
                if not isinstance(windows, SessionWindows):
                    for start, stop in held_by(windows, row["at"]):
                        if first <= start < end and stop + windows.grace * MILLI > clock:
                            found.setdefault((row["k"], (start, stop)), []).append(one)
                        missed |= first <= start < end and stop + windows.grace * MILLI <= clock
            late += missed
        return found, late


def _sessions(come: Come, windows: SessionWindows, found: dict[tuple[Any, tuple[int, int]], Come]) -> None:
    gap = windows.gap * MILLI
    for key in {row["k"] for row, _, _ in come}:
        some: Come = []
        for one in sorted((one for one in come if one[0]["k"] == key), key=lambda one: int(one[0]["at"])):
            last = some[-1][0]["at"] if some else 0
            if some and (one[0]["at"] - last > gap or one[0]["at"] >= _cut_at(windows, last)):
                found[key, (some[0][0]["at"], min(last + gap, _cut_at(windows, last)))] = some
                some = []
            some.append(one)
        last = some[-1][0]["at"]
        found[key, (some[0][0]["at"], min(last + gap, _cut_at(windows, last)))] = some


def _cut_at(windows: SessionWindows, at: int) -> int:
    """Return when the session of a row of that time ends at the latest."""
    return 1 << 60 if windows.within is None else held_by(windows.within, at)[-1][1]


def drawn(kind: str, random: Random, grace: int) -> Any:
    if kind == "session":
        return SessionWindows(random.choice([0, 1_000, 4_000, 9_000]), grace=LONG)
    if kind == "cut session":
        length = random.choice([4_000, 9_000, 20_000])
        gap = random.choice([gap for gap in (0, 1_000, 4_000, 9_000) if gap < length])
        return SessionWindows(gap, grace=LONG, max_length=length, offset=random.choice([0, 1_500]))
    if kind == "session of the calendar":
        return random.choice(OF_THE_CALENDAR).with_grace(LONG)
    if kind == "calendar":
        return random.choice(CALENDARS).with_grace(min(grace * 10_000, LONG))
    if kind == "cumulative":
        step = random.choice([1_000, 4_000])
        steps, offset = random.choice([1, 3, 5]), random.choice([0, 250, 500])
        return CumulativeWindows(steps * step, step, offset=offset, grace=grace)
    size = random.choice([1_000, 3_000, 7_000, 20_000])
    if kind == "offset":
        return TimeWindows(size, advance=random.choice([1_000, size]), offset=random.choice([0, 1, 250]), grace=grace)
    return TimeWindows(size, advance=size if kind == "tumbling" else random.choice([1_000, size]), grace=grace)


def later(eras: Eras, windows: Any, clock: int, random: Random) -> Eras:
    """Return the eras with one more: these windows, from a time on that no row has reached and at which one begins."""
    stretches = windows.with_grace(0) in (*CALENDARS, *OF_THE_CALENDAR)
    wait = random.choice([0, 0, 2 * SECOND, 9 * SECOND]) * (STEP if stretches else 1)
    free = max([0, clock, *eras.until]) + 1 + wait
    if isinstance(windows, TimeWindows):
        starts = [one for at in (free, held_by(windows, free)[-1][1]) for one, _ in held_by(windows, at)]
        free = min(start for start in starts if start >= free)
    return Eras([*eras.windows, windows], [*eras.until, free])


class CarriedKeeper(DurableKeeper):
    """Keeps state that goes on in other partitions."""

    generation = 0

    def fingerprint_of(self, application: str, plan: Plan) -> str:
        return f"{plan.fingerprint}{GENERATION_MARK}{self.generation}" if self.generation else plan.fingerprint


def carry(keeper: CarriedKeeper, before: Made, after: Made, partitions: tuple[int, int]) -> None:
    """Carry the state of a stopped query's tasks to other partitions, also where windows change."""
    verbs = [made.verb for made in (before, after)]
    plans = [make_plan(verb.topology, "out", number) for verb, number in zip(verbs, partitions, strict=True)]
    olds = {_task(one): one for one in keeper.committed_by("out")}
    old, new = map(shape_of, plans)
    origins = origins_of(old, new, Declared())
    found: dict[tuple[int, int], Manifest] = {}
    keeper.generation += 1
    for unit in range(units(*partitions)):
        found |= carry_unit(
            keeper.storage, unit, old, new, origins, olds,
            application_id="out", fingerprint=keeper.fingerprint_of("out", plans[1]), layouts=CARRIAGES,
        )  # fmt: skip
    keeper.committed.clear()
    keeper.begin("out", {f"{part}_{partition}": one for (part, partition), one in found.items()})


def _task(manifest: Manifest) -> tuple[int, int]:
    part, partition = manifest.task_id.split("_")
    return int(part), int(partition)


def check_counts(made: Made, eras: Eras, partitions: int, keeper: Keeper) -> None:
    """Check that tasks know how many windows of each sort will come out."""
    plan = make_plan(made.verb.topology, "out", partitions)
    ((part,),) = plan.stages
    spans = ChangedWindows(eras.windows, eras.until).spans
    for partition in range(partitions):
        with keeper.task(f"out/{part.index}_{partition}", part, plan) as stores:
            store = stores["aggregate"]
            places = [one for one, _ in store.fetch_keys()]
            by_end = isinstance(eras.windows[0], SessionWindows)
            for number, span in enumerate(spans):
                told = store.get_metadata(waiting_of(number))
                if told is not None:
                    own = [one.end if by_end else one.start for one in places if span.first <= one.start <= span.last]
                    closed = counted_at(store, waiting_of(number), 1)
                    assert int.from_bytes(told[-8:]) == sum(time > closed for time in own)
    keeper.commit()


def kept_at(place: Path, backend: str | None, seed: int) -> Keeper:
    return keeper_of(place, backend, seed) if backend else CarriedKeeper(place, BACKENDS, loses=bool(seed % 2))


def live(kind: str, seed: int, backend: str | None, runs: int) -> None:
    random = Random(seed)
    final, grace = random.random() < 0.5, random.choice([0, 2_000, LONG])
    places = random.sample([(key, second) for key in [None, "", *"abc"] for second in range(61)], random.randint(4, 50))
    events = [event("a", key, second, random.choice([None, 1, 2, 7]), "", with_op=False) for key, second in places]
    events.sort(key=lambda one: one.at + random.choice([0, 0, 4, 15]) * SECOND)
    if "calendar" in kind:
        events = [stretched(one) for one in events]
    life, partitions = Life({"n": "rows"}, {"n": 0}), random.choice([1, 2])
    eras, come, clock, batch = Eras([drawn(kind, random, grace)]), Come(), -(1 << 60), 0
    out, late = list[Row](), 0
    made: Made | None = None
    cuts = sorted(random.randint(0, len(events)) for _ in range(runs - 1))
    with TemporaryDirectory() as place, closing(kept_at(Path(place), backend, seed)) as keeper:
        for run, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(events)], strict=True)):
            changes = CallChanges()
            if run and kind != "cumulative" and random.random() < 0.7:
                eras = later(eras, drawn(kind, random, grace), clock, random)
            if run == 1:
                life.functions["s"], life.since["s"] = "sum", run
                changes = CallChanges(added=["s"])
            before, made = made, eras.made(life, changes, final)
            keeper.restart()
            if before is not None and isinstance(keeper, CarriedKeeper) and random.random() < 0.7:
                carry(keeper, before, made, (partitions, other := random.choice([1, 2, 3])))
                partitions = other
            query = Query([made], [partitions], keeper, random)
            query._batch = batch
            some = cut(events[start:stop], Way(seed, random.randint(1, 3), 2, (partitions,)), random)
            for number, part in enumerate(some):
                deaths = [random.randint(0, 2)] if random.random() < 0.3 else []
                verbs = Verbs([made], {"a": SOURCE}, {"a": "at"})
                complete = run == runs - 1 and number == len(some) - 1
                for table in query.run(tables(verbs, part, 2, random), deaths=deaths, complete=complete):
                    out += rows_of(table)
                come += [(row, run, clock) for row in own(part, "a")]
                clock = max([clock, *(row["at"] for row in own(part, "a"))])
                batch += 1
            if final and run < runs - 1:
                check_counts(made, eras, partitions, keeper)
            late += sum(len(one.records) for told in query.late["out"] for one in told)
            groups, missed = eras.groups(come)
            assert late == (missed if "session" not in kind else 0)
            if not final:
                assert {*current(out, ["k", "window"])} == {*groups}
            assert {(row["k"], row["window"]) for row in stored(made, partitions, keeper)} <= {*groups}
    ended = out if final else list(current(out, ["k", "window"]).values())
    assert Counter((row["k"], row["window"]) for row in ended) == Counter([*groups])
    for row in ended:
        rows = sorted(groups[row["k"], row["window"]], key=lambda one: int(one[0]["at"]))
        answer = life.results([one[:2] for one in rows], row["window"][0])
        assert {name: row[name] for name in answer if name in row} == {n: answer[n] for n in answer if n in row}


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@histories(12)
@given(st.integers(0, 1 << 32), st.sampled_from(["memory", "memory", "lmdb", "rocksdb", None]), st.integers(2, 4))
def test_old_windows_end_as_they_began_and_new_ones_begin_at_their_time(
    kind: str, columns: bool, seed: int, backend: str | None, runs: int
) -> None:
    """Rows are folded as columns or one by one."""
    with pytest.MonkeyPatch.context() as patch:
        if not columns:
            patch.setattr(WindowedProcessor, "_make_column_fold", lambda self: None)
        live(kind, seed, backend, runs)


@pytest.mark.parametrize("kind", KINDS)
@histories(12)
@given(st.integers(0, 1 << 32))
def test_windows_that_have_changed_go_on_in_other_partitions(kind: str, seed: int) -> None:
    live(kind, seed, None, 4)


HOUR = 3_600_000
TWO_HOURS = TimeWindows(2 * HOUR)
ONE_HOUR = TimeWindows(HOUR, grace=60_000)


def counted(eras: Eras, place: Path, *hours: float) -> list[Row]:
    """Run one micro-batch of a query over what is kept there."""
    made = eras.made(Life({"n": "rows"}, {"n": 0}), CallChanges(), final=False)
    rows = [Event("a", int(hour * HOUR * MILLI), {"k": "k", "at": int(hour * HOUR * MILLI), "av": 1}) for hour in hours]
    with closing(BackendKeeper(place, "lmdb")) as keeper:
        query, verbs = Query([made], [1], keeper, Random(0)), Verbs([made], {"a": SOURCE}, {"a": "at"})
        return [row for table in query.run(tables(verbs, rows, 1, Random(0))) for row in rows_of(table)]


def test_another_size_is_refused_with_what_to_write_and_another_time_with_the_earliest(tmp_path: Path) -> None:
    counted(Eras([ONE_HOUR]), tmp_path, 0.5, 2.5)
    told = (
        r"size='1 hour' and not '2 hours'.* or leave windows that have begun as they were: until=\{'[^']*': "
        r"TimeWindows\(size='1 hour', advance='1 hour', grace='1 minute'\)\}"
    )
    with pytest.raises(StateConflictError, match=told):
        counted(Eras([TWO_HOURS]), tmp_path, 2.6)
    advised = TimeWindows(size="1 hour", advance="1 hour", grace="1 minute")
    with pytest.raises(StateConflictError, match=r"is free is '1970-01-01T04:00:00\+00:00': write it in until"):
        counted(Eras([advised, TWO_HOURS], [2 * HOUR * MILLI]), tmp_path, 2.6)
    changed = Eras([advised, TWO_HOURS], [4 * HOUR * MILLI])
    assert [(row["window"], row["n"]) for row in counted(changed, tmp_path, 2.6, 4.5)] == [
        ((2 * HOUR * MILLI, 3 * HOUR * MILLI), 2),
        ((4 * HOUR * MILLI, 6 * HOUR * MILLI), 1),
    ]
    for other in (Eras([ONE_HOUR]), Eras([advised, TWO_HOURS], [6 * HOUR * MILLI])):
        with pytest.raises(StateConflictError, match=r"since 1970-01-01T04:00:00.*='2 hours', .*which is not there"):
            counted(other, tmp_path, 5.0)
    assert [row["n"] for row in counted(changed, tmp_path, 5.0)] == [2]


def test_a_window_that_is_put_is_checked_against_those_of_its_own_time(tmp_path: Path) -> None:
    """Also where no record of the state has the new ones, and the old ones have closed up to a later time."""
    first, changed = Eras([TimeWindows(HOUR)]), Eras([TimeWindows(HOUR), TWO_HOURS], [4 * HOUR * MILLI])
    made = [eras.made(Life({"n": "rows"}, {"n": 0}), CallChanges(), final=True) for eras in (first, changed, changed)]
    chain = Verbs(made[:1], {"a": SOURCE}, {"a": "at"})
    out = []
    with closing(StoppedKeeper(tmp_path, schemas_of(chain))) as keeper:
        for number, hour in enumerate([0.5, 7.5, 8.5]):
            keeper.restart()
            query = Query([made[number]], [1], keeper, Random(0))
            query._batch = number
            at = int(hour * HOUR * MILLI)
            rows = tables(chain, [Event("a", at, {"k": "k", "at": at, "av": 1})], 1, Random(0))
            out += [row for table in query.run(rows) for row in rows_of(table)]
            if number == 1:
                keeper.restart()
                with StateEditor(keeper.inspector, "x", "") as editor:
                    put_windows(editor)
    assert [(row["k"], row["window"][0] // HOUR // MILLI, row["n"]) for row in out] == [
        ("k", 0, 1), ("j", 6, 5), ("k", 6, 7),
    ]  # fmt: skip


def put_windows(editor: StateEditor) -> None:
    found = editor.view("aggregate").get(["k"])
    assert found is not None
    row = found.to_pylist()[-1]
    begun = row["window_start"]
    assert begun.hour == 6
    with pytest.raises(
        ConfigurationError, match=r"start every 2 hours: give the window_start \(--window-start\) 1970-01-01T04:00:00"
    ):
        editor.put("aggregate", [{**row, "key": ["j"], "window_start": begun - timedelta(hours=1)}])
    with pytest.raises(
        ConfigurationError, match=r"start every 1 hour: give the window_start \(--window-start\) 1970-01-01T03:00:00"
    ):
        editor.put("aggregate", [{**row, "key": ["j"], "window_start": begun - timedelta(hours=2.5)}])
    editor.put("aggregate", [{**row, "value": {"count": 7}}, {**row, "key": ["j"], "value": {"count": 5}}])
    editor.commit()


def test_a_recorded_shape_goes_on_with_windows_that_change() -> None:
    def shape(eras: Eras) -> Any:
        made = eras.made(Life({"n": "rows"}, {"n": 0}), CallChanges(), final=True)
        return shape_of(make_plan(made.verb.topology, "out", 1))

    before, after = shape(Eras([ONE_HOUR])), shape(Eras([ONE_HOUR, TWO_HOURS], [4 * HOUR * MILLI]))
    check_terms(before, after)
    assert before == after
    with pytest.raises(StateConflictError, match="write its until again"):
        check_terms(after, before)


def test_until_takes_windows_of_one_sort_and_times_at_which_the_next_begin() -> None:
    assert until_in_micros(TWO_HOURS, {"1970-01-01T04:00:00Z": ONE_HOUR}) == {4 * HOUR * MILLI: ONE_HOUR}
    with pytest.raises(ConfigurationError, match=r"the next that does is '1970-01-01T04:00:00\+00:00'"):
        until_in_micros(TWO_HOURS, {"1970-01-01T03:00:00Z": ONE_HOUR})
    assert until_in_micros(TWO_HOURS, {"1970-01-01T04:00:00+00:00": ONE_HOUR}) == {4 * HOUR * MILLI: ONE_HOUR}
    for window in (None, SessionWindows(HOUR), SlidingWindows(HOUR)):
        with pytest.raises(ConfigurationError, match="other windows take another name of the verb"):
            until_in_micros(window, {"1970-01-01T04:00:00Z": ONE_HOUR})


def test_the_times_of_until_may_be_in_any_order() -> None:
    """Windows of two hours begin at 02:00, and those of three do not."""
    shorter, shortest = TimeWindows("2 hours"), TimeWindows("1 hour")
    until: dict[Any, Any] = {"2026-06-01T06:00:00Z": shorter, "2026-06-01T02:00:00Z": shortest}
    found = until_in_micros(TimeWindows("3 hours"), until)
    assert list(found.values()) == [shorter, shortest]
    cut = changed_windows(TimeWindows("3 hours"), found)
    assert isinstance(cut, ChangedWindows)
    assert [getattr(windows, "size", None) for windows in cut.eras] == [hours * HOUR * MILLI for hours in (1, 2, 3)]
    assert list(cut.since) == sorted(found)
