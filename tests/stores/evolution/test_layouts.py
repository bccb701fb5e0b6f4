"""Operators go on in other partitions as if they had always been there, and nothing that waits is lost."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from millpond.processors import (
    EmitStrategy,
    Grouped,
    Joined,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Produced,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from millpond.processors.verbs import KeyContext, KeyedProcessor
from millpond.processors.verbs.apply import apply_topology
from millpond.processors.verbs.key_timers import KeyTimers, TimerClock, keyed_timers_spec
from millpond.processors.verbs.rekeying.carriages import CARRIAGES
from millpond.stores.durability import Storage
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from tests.stores.evolution import queries
from tests.stores.evolution.jobs import Input, Job, carried, everywhere
from tests.stores.evolution.queries import Task, carry, manifests_of

Build = Callable[[StreamsBuilder], KStream | KTable]
TEXT = Materialized.with_serdes("string", "string")
KEYS = [f"k{i}" for i in range(12)]
TIMES = [(2, 3), (4, 6), (6, 4), (1, 5), (5, 1), (3, 3)]
FINAL = EmitStrategy.ON_WINDOW_CLOSE


def text(*parts: Any) -> str:
    return "/".join(map(str, parts))


def windowed(windows: Any, emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE) -> Build:
    return lambda builder: _windowed(builder, windows).emit_strategy(emit).count()


def _windowed(builder: StreamsBuilder, windows: Any) -> Any:
    return builder.stream("in").group_by_key(Grouped("string", "string")).windowed_by(windows)


def suppressed_windows(builder: StreamsBuilder) -> KTable:
    counts: KTable = _windowed(builder, TimeWindows(10, grace=5)).count()
    return counts.suppress(Suppressed.until_window_closes())


def suppressed_sessions(builder: StreamsBuilder) -> KTable:
    counts: KTable = _windowed(builder, SessionWindows(6, grace=5)).count()
    return counts.suppress(Suppressed.until_window_closes())


def suppressed(builder: StreamsBuilder) -> KTable:
    return builder.table("in").suppress(Suppressed.until_time_limit(15))


def left_join(builder: StreamsBuilder) -> KStream:
    windows = JoinWindows.of(6, grace=4)
    return builder.stream("in").left_join(builder.stream("other"), text, windows=windows)


def outer_join_of_numbers(builder: StreamsBuilder) -> KStream:
    """Return a join of records by keys that are text; the join keeps them as JSON."""
    left = builder.stream("in").map_values(lambda value: value)
    windows = JoinWindows.of(6, grace=4)
    return left.outer_join(builder.stream("other"), text, StreamJoined("json"), windows=windows)


def patient_join(builder: StreamsBuilder) -> KStream:
    table = builder.table("other", materialized=Materialized.versioned(history_retention=500))
    return builder.stream("in").join(table, text, Joined(grace=12))


def foreign_key_join(builder: StreamsBuilder) -> KTable:
    left = builder.table("in", materialized=TEXT)
    return left.left_join(builder.table("other", materialized=TEXT), text, TEXT, foreign_key=lambda value: value[:2])


def recounted(builder: StreamsBuilder) -> KTable:
    counts = builder.stream("in").select_key(lambda key, value: value[:2], key_serde="string")
    return counts.group_by_key(Grouped("string", "string")).count()


def versioned(builder: StreamsBuilder) -> KTable:
    return builder.stream("in").to_table(Materialized.versioned(history_retention=30), reorder_within=8)


def looked_up(builder: StreamsBuilder) -> KStream:
    names = builder.global_table("other", materialized=Materialized("names", key_serde="string", value_serde="string"))
    counts = builder.stream("in").group_by_key(Grouped("string", "string")).count().to_stream()
    return counts.join(names, text, selector=lambda key, count: key)


BUILDS: dict[str, Build] = {
    "windows": windowed(TimeWindows(10, grace=5)),
    "final hopping windows": windowed(TimeWindows(10, advance=4, grace=5), FINAL),
    "final months": windowed(TimeWindows("1 month", zone="Europe/Berlin", grace="5 days"), FINAL),
    "final sliding windows": windowed(SlidingWindows(8, grace=5), FINAL),
    "final sessions": windowed(SessionWindows(6, grace=5), FINAL),
    "suppressed windows": suppressed_windows,
    "suppressed sessions": suppressed_sessions,
    "suppressed": suppressed,
    "left join": left_join,
    "outer join of other keys": outer_join_of_numbers,
    "join with a grace": patient_join,
    "foreign-key join": foreign_key_join,
    "recounted": recounted,
    "versions": versioned,
    "global table": looked_up,
}


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.from_uri(f"file://{tmp_path}?sync=false")


def topology(build: Build) -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    made = build(builder)
    (made.to_stream() if isinstance(made, KTable) else made).to("out", Produced("string", "string"))
    return builder.build()


def records(seed: int, first: int, topics: Sequence[str]) -> list[Input]:
    """Return records from ``first`` to ``first + 40``, a little out of order."""
    made = random.Random(seed)
    times = [first + i + made.randrange(-4, 1) for i in range(40)]
    return [Input(made.choice(topics), made.choice(KEYS), made.choice(KEYS), max(time, first)) for time in times]


@pytest.mark.parametrize("name", [name for name in BUILDS if name != "suppressed"])
def test_an_operator_puts_out_what_it_would_put_out_in_these_partitions_all_along(name: str, storage: Storage) -> None:
    made = topology(BUILDS[name])
    topics = sorted({"in", "other"} & set(made.sources))
    for seed, (before, after) in enumerate(TIMES):
        early, late = records(seed, 100, topics), records(seed + 100, 141, topics)
        early += everywhere(topics, "k0", 140, before, after)
        job, always = Job(storage, made, before), Job(storage, made, after)
        job.run(early)
        always.run(early)
        job = carried(storage, job, after, CARRIAGES, ["names"])
        assert job.run(late) == always.run(late), (before, after)
        end = everywhere(topics, "k0", 10_000, before, after)
        assert job.run(end, complete=True) == always.run(end, complete=True), (before, after)


STEPS = {"final months": 3 * 86_400_000}
"""How long it is from one record to the next, where that is more than a millisecond."""


def uneven(seed: int, before: int, step: int) -> list[Input]:
    """Return records whose times depend on the partition, in order within each."""
    made = random.Random(seed)
    given = [(made.choice(KEYS), at) for at in range(100, 160)]
    behind = {key: 13 * partition_of(key.encode(), before) for key in KEYS}
    return [Input("in", key, "x", (at - behind[key]) * step) for key, at in given]


WAITING = [name for name in BUILDS if name.startswith(("final", "suppressed")) or name == "left join"]


@pytest.mark.parametrize("name", WAITING)
def test_what_waits_comes_out_once_although_partitions_had_come_to_different_times(name: str, storage: Storage) -> None:
    made = topology(BUILDS[name])
    for seed, (before, after) in enumerate(TIMES):
        step = STEPS.get(name, 1)
        given, end = uneven(seed, before, step), everywhere(made.sources, "x", 1000 * step, before, after)
        for ended in (False, True):
            job = Job(storage, made, before)
            job.run(given[:30], complete=ended)
            job.run(given[30:])
            moved, again = (carried(storage, job, after, CARRIAGES) for _ in range(2))
            assert moved.run([]) == Counter()
            assert moved.run([], complete=True) == Job(storage, made, before, job.manifests).run([], complete=True)
            assert again.run(end) == job.run(end), (before, after, ended)


def test_a_short_month_that_has_come_out_does_not_do_so_again_beside_a_partition_within_a_long_one(
    storage: Storage,
) -> None:
    made = topology(BUILDS["final months"])
    ahead, behind = (next(key for key in KEYS if partition_of(key.encode(), 2) == number) for number in (0, 1))
    times = [(ahead, 2, 10), (behind, 2, 5), (ahead, 3, 6)]
    given = [
        Input("in", key, "x", round(datetime(1971, month, day, 12, tzinfo=UTC).timestamp() * 1000))
        for key, month, day in times
    ]
    job, end = Job(storage, made, 2), everywhere(made.sources, "x", 100 * STEPS["final months"] * 10, 2, 1)
    assert sum(job.run(given).values()) == 1
    assert carried(storage, job, 1, CARRIAGES).run(end) == job.run(end)


def test_timers_fire_once_each_in_the_partition_of_their_key(storage: Storage) -> None:
    specs = [keyed_timers_spec("timers")]
    tasks = [Task(storage, specs, f"0_{partition}") for partition in range(4)]
    keys = [bytes([i, 0, i]) for i in range(40)]
    for partition, task in enumerate(tasks):
        for clock in TimerClock:
            timers = KeyTimers(task.stores["timers"], clock)
            for key in keys:
                if partition_of(key, 4) == partition:
                    timers.set(key, b"one", 100 + key[0])
                    timers.set(key, b"", 200)
            timers.save()
        task.commit()
    before, after = queries.shape_of(specs, 4), queries.shape_of(specs, 6)
    moved = carry(storage, before, after, manifests_of(tasks), CARRIAGES)
    for partition in range(6):
        task = Task(storage, specs, f"0_{partition}", moved.get((0, partition)))
        for clock in TimerClock:
            timers = KeyTimers(task.stores["timers"], clock)
            mine = {key for key in keys if partition_of(key, 6) == partition}
            assert timers.load(1000) == mine
            fired = [timers.pop(1000) for _ in range(2 * len(mine))]
            assert {(due.key, due.name, due.time) for due in fired if due} == {
                entry for key in mine for entry in ((key, b"one", 100 + key[0]), (key, b"", 200))
            }
            assert timers.now(next(iter(mine)), b"one") is None


TTL = 15
EXPIRING: dict[str, Callable[[Literal["silent", "delete"]], Build]] = {
    "table": lambda expired: lambda builder: builder.table("in", materialized=Materialized(ttl=TTL, expired=expired)),
    "versions": lambda expired: (
        lambda builder: builder.table(
            "in", materialized=Materialized.versioned(history_retention=8, ttl=TTL, expired=expired)
        )
    ),
    "count": lambda expired: (
        lambda builder: (
            builder.stream("in").group_by_key(Grouped("string", "string")).count(Materialized(ttl=TTL, expired=expired))
        )
    ),
}


def counted(given: Sequence[tuple[str, int]]) -> dict[str, list[list[int]]]:
    """Return the times of the records of each key, which begin anew where the one before has expired."""
    lives: dict[str, list[list[int]]] = {}
    for key, at in given:
        own = lives.setdefault(key, [])
        if own and own[-1][-1] + TTL > at:
            own[-1].append(at)
        else:
            own.append([at])
    return lives


@pytest.mark.parametrize("expired", ["silent", "delete"])
@pytest.mark.parametrize("name", EXPIRING)
def test_what_has_a_time_to_live_expires_at_its_time_there_and_back_in_other_partitions(
    name: str, expired: Literal["silent", "delete"], storage: Storage
) -> None:
    made = topology(EXPIRING[name](expired))
    for seed, (before, after) in enumerate(TIMES):
        random_ = random.Random(seed)
        given = [(random_.choice(KEYS), 100 + 2 * step) for step in range(75)]
        job, found = Job(storage, made, before), Counter[tuple[Any, ...]]()
        for first, partitions in zip((0, 25, 50), (after, before, after), strict=True):
            some = given[first : first + 25]
            ticks = everywhere(["in"], "x", some[-1][1], before, after)
            found += job.run([*(Input("in", key, "x", at) for key, at in some), *ticks])
            job = carried(storage, job, partitions, CARRIAGES)
        found += job.run(everywhere(["in"], "x", 1000, before, after))
        expected = Counter[tuple[Any, ...]]()
        for key, lives in counted(given).items():
            for times in lives:
                values = range(1, len(times) + 1) if name == "count" else ["x"] * len(times)
                told = [*zip(values, times, strict=True), *([(None, times[-1] + TTL)] if expired == "delete" else [])]
                expected.update(tuple(map(repr, Input("out", key, value, at))) for value, at in told)
        assert Counter({one: n for one, n in found.items() if "tick" not in one[1]}) == expected, (before, after)


class Counting(KeyedProcessor):
    """Numbers the rows of each key, as far as its state knows."""

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> list[dict[str, Any]]:
        number = context.state.get(0) + 1
        context.state.set(number)
        return [{"number": number}]


def test_the_state_of_a_rule_expires_at_its_time_there_and_back_in_other_partitions(storage: Storage) -> None:
    keys, rows = KeyCodec(pa.schema({"k": pa.string()})), RowCodec(Schemas.first(pa.schema({"v": pa.int64()})))
    made = apply_topology("out", Counting(), keys, rows, 0, ttl=TTL)
    (row,) = rows.pack(pa.table({"v": [1]}))
    packed = dict(zip(KEYS, keys.pack(pa.table({"k": KEYS})), strict=True))
    for seed, (before, after) in enumerate(TIMES):
        random_ = random.Random(seed)
        given = [(random_.choice(KEYS), 100 + 2 * step) for step in range(75)]
        job, found = Job(storage, made, before), Counter[tuple[Any, ...]]()
        for first, partitions in zip((0, 25, 50), (after, before, after), strict=True):
            found += job.run([Input("input", packed[key], row, at) for key, at in given[first : first + 25]])
            job = carried(storage, job, partitions, CARRIAGES)
        expected = Counter(
            tuple(map(repr, Input("out", packed[key], {"number": number}, at)))
            for key, lives in counted(given).items()
            for times in lives
            for number, at in enumerate(times, 1)
        )
        assert found == expected, (before, after)
