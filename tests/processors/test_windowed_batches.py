"""Aggregations over windows and sessions: however records are cut into batches, and whatever fails, all comes the same.

Also the unkind: aggregates that become None, functions that raise, late records, streams that share a store.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.processors import (
    CumulativeWindows,
    EmitStrategy,
    KTable,
    Materialized,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    TopologyDriver,
)
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.tasks.task import Task
from millpond.stores.backend.contract import Entries
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.typed.windows.windowed import Windowed
from tests.drawing import tries

WINDOWS: dict[str, Any] = {
    "sessions": SessionWindows(5, grace=4),
    "long sessions": SessionWindows(40, grace=20),
    "sessions that are cut": SessionWindows(5, grace=4, max_length=9, offset=2),
    "sliding": SlidingWindows(6, grace=4),
    "tumbling": TimeWindows(6, grace=4),
    "hopping": TimeWindows(9, advance=4, grace=4),
    "cumulative": CumulativeWindows(9, 3, grace=4, offset=2),
}
PLANS = list(WINDOWS)
Row = tuple[Any, Any, int]

thorough = settings(max_examples=tries(50), deadline=None, suppress_health_check=list(HealthCheck))
values = st.sampled_from(["a", "b", "c", "clear", "raise", None])
records: st.SearchStrategy[list[Row]] = st.lists(
    st.tuples(st.sampled_from(["k", "l", "m", None]), values, st.integers(-10, 90)), max_size=40
)
climbing = records.map(lambda rows: [(key, value, 3 * i + time // 6) for i, (key, value, time) in enumerate(rows)])
cuts = st.lists(st.integers(1, 12), min_size=1, max_size=8)


def fail_on(value: Any) -> None:
    if value == "raise":
        raise ValueError("a value that the function does not like")


def add_text(key: Any, value: str, total: str) -> str | None:
    fail_on(value)
    return None if value == "clear" else total + value


def add_to_list(key: Any, value: str, held: list[str]) -> list[str] | None:
    """Change the aggregate in place, also before it fails."""
    held.append(value)
    fail_on(value)
    return None if value == "clear" else held


def extend(key: Any, left: list[str], right: list[str]) -> list[str]:
    left.extend(right)
    return left


def concatenate(key: Any, left: str, right: str) -> str:
    return left + right


FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "text": (str, add_text, concatenate, "string"),
    "list": (list, add_to_list, extend, "json"),
}


def table(builder: StreamsBuilder, windows: Any, functions: str, final: bool, caching: bool) -> KTable:
    initializer, adder, merger, serde = FUNCTIONS[functions]
    stream = builder.stream("in").group_by_key().windowed_by(windows)
    emit = EmitStrategy.ON_WINDOW_CLOSE if final else EmitStrategy.ON_WINDOW_UPDATE
    stored = Materialized("store", value_serde=serde)
    stored = stored.with_caching() if caching else stored
    mergers = (merger,) if isinstance(windows, SessionWindows) else ()
    made: KTable = stream.emit_strategy(emit).aggregate(initializer, adder, *mergers, stored)
    return made


def cut(rows: list[Row], sizes: list[int]) -> Iterator[list[Row]]:
    """Yield the rows in batches; the sizes repeat."""
    at = 0
    for size in cycle(sizes):
        if at >= len(rows):
            return
        yield rows[at : at + size]
        at += size


def run(
    rows: list[Row],
    sizes: list[int],
    build: Callable[[StreamsBuilder], KTable],
) -> tuple[list[Record], Counter[str], list[Any]]:
    """Return what comes out, what was counted, and what the store holds at the end; records are taken as they come."""
    builder = StreamsBuilder(order="arrival")
    build(builder).to("out")
    with TopologyDriver(builder.build(), on_error="skip") as driver:
        for batch in cut(rows, sizes):
            driver.pipe_all("in", batch)
        store = driver.store("store")
        return driver.read("out"), Counter(driver.counters), sorted(store.fetch_keys())


@pytest.mark.parametrize("functions", list(FUNCTIONS))
@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("windows", PLANS)
@thorough
@given(rows=st.one_of(records, climbing), sizes=cuts)
def test_any_batches_give_what_single_records_give(
    windows: str, final: bool, functions: str, rows: list[Row], sizes: list[int]
) -> None:
    def build(builder: StreamsBuilder) -> KTable:
        return table(builder, WINDOWS[windows], functions, final, caching=False)

    assert run(rows, sizes, build) == run(rows, [1], build)


@pytest.mark.parametrize("windows", PLANS)
@thorough
@given(rows=st.one_of(records, climbing), sizes=cuts)
def test_so_they_do_where_two_streams_share_a_store(windows: str, rows: list[Row], sizes: list[int]) -> None:
    def build(builder: StreamsBuilder) -> KTable:
        vowels, others = builder.stream("in").split().branch(lambda k, v: v == "a").default_branch().values()
        grouped = vowels.group_by_key().cogroup(add_text).cogroup(others.group_by_key(), add_text)
        mergers = (concatenate,) if isinstance(WINDOWS[windows], SessionWindows) else ()
        stored = Materialized("store", value_serde="string")
        made: KTable = grouped.windowed_by(WINDOWS[windows]).aggregate(str, *mergers, stored)
        return made

    assert run(rows, sizes, build) == run(rows, [1], build)


@pytest.mark.parametrize("size", [1, 3])
def test_a_session_that_becomes_none_at_once_still_moves_the_time_by_which_the_store_forgets(size: int) -> None:
    rows = [("k", "a", 70), ("l", "clear", 120), ("k", "b", 101)]

    def build(builder: StreamsBuilder) -> KTable:
        return table(builder, SessionWindows(40, grace=0), "text", False, caching=False)

    output, _, stored = run(rows, [size], build)
    assert [record.key for record in output] == [
        Windowed("k", 70, 70),
        Windowed("l", 120, 120),
        Windowed("k", 101, 101),
    ]
    assert stored == [(Windowed("k", 101, 101), "b")]


class CountedScans(Transaction):
    """Counts the scans and the entries that they gave."""

    scans = entries = 0

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        self.scans += 1
        for entry in super().scan(start, stop, reverse=reverse):
            self.entries += 1
            yield entry


@pytest.mark.parametrize("windows", ["long sessions", "sliding"])
def test_a_batch_reads_its_keys_in_few_walks_and_of_other_keys_next_to_nothing(windows: str) -> None:
    builder = StreamsBuilder()
    table(builder, WINDOWS[windows], "text", False, caching=False).to("out")
    (part,) = builder.build().subtopologies
    with CountedScans(MemoryBackend()) as transaction:
        task = Task(part, {name: spec.open(transaction) for name, spec in part.stores.items()})
        everybody = [f"{number:04d}" for number in range(2_000)]
        task.process("in", Batch(everybody, ["a"] * 2_000, [10] * 2_000))
        transaction.commit()
        transaction.scans = transaction.entries = 0
        task.process("in", Batch(everybody, ["a"] * 2_000, [11] * 2_000))
        assert transaction.scans < 10
        transaction.commit()
        transaction.scans = transaction.entries = 0
        task.process("in", Batch(everybody[::500], ["a"] * 4, [11] * 4))
        assert transaction.entries < 200
        transaction.rollback()
        task.close()
