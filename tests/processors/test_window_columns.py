"""Windows and sessions over columns give what they give over objects, to the record."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.processors import (
    Consumed,
    CumulativeWindows,
    EmitStrategy,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Task,
    TimeWindows,
    Topology,
)
from millpond.processors.runtime.batches.columns import Columns
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.registry import supplier
from millpond.stores.backend.transaction import Transaction
from tests.drawing import tries
from tests.processors.test_columns import KEYS, VALUES, Form, Record, as_batch, as_columns

WINDOWS: dict[str, TimeWindows | CumulativeWindows | SessionWindows] = {
    "tumbling": TimeWindows(6, grace=4),
    "without grace": TimeWindows(1),
    "hopping": TimeWindows(9, advance=4, grace=4),
    "cumulative": CumulativeWindows(12, 3, grace=4, offset=5),
    "cumulative without grace": CumulativeWindows(8, 2),
    "cumulative of one step": CumulativeWindows(6, 6, grace=2),
    "sessions": SessionWindows(5, grace=12),
    "sessions without grace": SessionWindows(3),
    "sessions with little grace": SessionWindows(5, grace=2),
    "sessions of a moment": SessionWindows(0, grace=3),
    "sessions that are cut": SessionWindows(5, grace=12, max_length=8),
    "sessions that are cut, with little grace": SessionWindows(5, grace=2, max_length=13, offset=4),
    "sessions of a moment, cut": SessionWindows(0, grace=3, max_length=1),
}

SLIDING: dict[str, SlidingWindows] = {
    "sliding": SlidingWindows(5, grace=4),
    "sliding without grace": SlidingWindows(3),
    "sliding with much grace": SlidingWindows(2, grace=14),
    "sliding of a moment": SlidingWindows(0, grace=3),
}
AnyWindows = TimeWindows | CumulativeWindows | SessionWindows | SlidingWindows


def counting(windows: AnyWindows, key_serde: str = "string", **options: Any) -> Topology:
    return _counting(windows, key_serde, EmitStrategy.ON_WINDOW_CLOSE, Materialized("store", **options))


def _counting(windows: AnyWindows, key_serde: str, emit: EmitStrategy, kept: Materialized) -> Topology:
    builder = StreamsBuilder(key_serde=key_serde, value_serde="int64")
    windowed: Any = builder.stream("in", Consumed(key_serde, "int64")).group_by_key().windowed_by(windows)
    windowed.emit_strategy(emit).count(kept).to_stream().to("out")
    return builder.build()


def updating(windows: AnyWindows, key_serde: str) -> Topology:
    kept = Materialized("store", retention=windows.retention + 1).with_caching()
    return _counting(windows, key_serde, EmitStrategy.ON_WINDOW_UPDATE, kept)


def steps(
    topology: Topology, backend: str, chunks: list[list[Record]], form: Form | None, complete_at: int
) -> Iterator[Any]:
    """Yield what comes out of each micro-batch, is counted, and is in the store at its end; no form: one by one."""
    (part,) = topology.subtopologies
    with TemporaryDirectory() as directory, supplier(backend).open(Path(directory) / "store") as engine:
        for number, chunk in enumerate(chunks):
            transaction = Transaction(engine)
            stores: dict[str, Any] = {name: spec.open(transaction) for name, spec in part.stores.items()}
            task = Task(part, stores)
            for run in as_batch(chunk).rows() if form is None else [form(chunk)]:
                task.process("in", run)
            if number == complete_at:
                task.complete()
            task.flush()
            out = [run.to_batch() for run in task.take().get("out", [])]
            yield [record for run in out for record in zip(run.keys, run.values, run.timestamps, strict=True)]
            yield sorted(task.counters.items())
            for store in stores.values():
                store.flush()
                store.check()
                yield sorted(store.fetch_keys())
            transaction.commit()


def chunks_of(key_serde: str) -> st.SearchStrategy[list[list[Record]]]:
    """Return micro-batches whose times climb, with stragglers and, now and then, a jump."""
    row = st.tuples(KEYS[key_serde][1], VALUES, st.sampled_from([0, 0, 1, 2, 5, 6, 13, 60]), st.integers(0, 16))
    ahead = st.booleans()

    def climbing(rows: list[list[tuple[Any, Any, int, int]]], straggling: bool) -> list[list[Record]]:
        time, chunks = -20, []
        for chunk in rows:
            records = []
            for key, value, step, back in chunk:
                time += step
                records.append((key, value, time - back if straggling or back < 3 else time))
            chunks.append(records)
        return chunks

    return st.builds(climbing, st.lists(st.lists(row, min_size=1, max_size=14), min_size=1, max_size=5), ahead)


@pytest.mark.parametrize(
    ("key_serde", "backend", "examples"),
    [("string", "memory", 60), ("bytes", "memory", 20), ("int64", "memory", 20), ("string", "lmdb", 10)],
)
def test_final_counts_of_columns_are_those_of_single_records(
    key_serde: str, backend: str, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.processors.aggregations.window_fold._LEAST_PART", 2)
    topologies = [counting(windows, key_serde) for windows in [*WINDOWS.values(), *SLIDING.values()]]

    @settings(max_examples=tries(examples), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(topologies), chunks_of(key_serde), st.sampled_from([-1, -1, 1]))
    def check(topology: Topology, chunks: list[list[Record]], complete_at: int) -> None:
        form = as_columns(KEYS[key_serde][0])
        columns = list(steps(topology, backend, chunks, form, complete_at))
        assert columns == list(steps(topology, backend, chunks, None, complete_at))

    check()


@pytest.mark.parametrize(
    ("key_serde", "backend", "examples"), [("string", "memory", 60), ("int64", "memory", 20), ("bytes", "rocksdb", 10)]
)
def test_last_updates_of_columns_are_those_of_objects(key_serde: str, backend: str, examples: int) -> None:
    topologies = [updating(windows, key_serde) for windows in [*WINDOWS.values(), *SLIDING.values()]]

    @settings(max_examples=tries(examples), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(topologies), chunks_of(key_serde))
    def check(topology: Topology, chunks: list[list[Record]]) -> None:
        columns = steps(topology, backend, chunks, as_columns(KEYS[key_serde][0]), -1)
        objects = steps(topology, backend, chunks, as_batch, -1)
        # In a micro-batch a session has one update, wherever it comes.
        assert list(map(_sorted, columns)) == list(map(_sorted, objects))

    check()


def _sorted(entries: list[Any]) -> list[Any]:
    return sorted(entries, key=repr)


@pytest.mark.parametrize("windows", [*WINDOWS, *SLIDING])
def test_windows_of_columns_go_on_with_what_earlier_micro_batches_have_stored(windows: str) -> None:
    chunks: list[list[Record]] = [
        [("b", 1, 20), ("a", 1, 20)],
        [("a", 1, 21), ("b", 1, 22), ("a", 1, 22)],
        [("a", 1, 22), ("b", 1, 90)],
    ]
    cut = (WINDOWS | SLIDING)[windows]
    for topology in (counting(cut), updating(cut, "string")):
        columns = steps(topology, "memory", chunks, as_columns(pa.string()), -1)
        assert list(map(_sorted, columns)) == list(map(_sorted, steps(topology, "memory", chunks, as_batch, -1)))


def test_sessions_are_replaced_behind_their_deletes() -> None:
    (part,) = updating(SessionWindows(5, grace=10), "string").subtopologies
    task = Task(part, {name: spec.open(Transaction(MemoryBackend())) for name, spec in part.stores.items()})
    for records in [("a", 1, 2), ("a", 1, 10), ("b", 1, 9)], [("b", 1, 9), ("a", 1, 6)]:
        task.process("in", as_columns(pa.string())(records))
        task.flush()
    runs = task.take()["out"]
    assert all(isinstance(run, Columns) for run in runs)
    out = [row for run in runs for row in zip(run.to_batch().keys, run.to_batch().values, strict=True)]
    assert [(*key, value) for key, value in out[3:]] == [
        ("b", 9, 9, 2),
        ("a", 2, 2, None),
        ("a", 10, 10, None),
        ("a", 2, 10, 3),
    ]


@pytest.mark.parametrize("windows", list(WINDOWS))
def test_records_in_time_never_become_objects(windows: str) -> None:
    (part,) = counting(WINDOWS[windows]).subtopologies
    task = Task(part, {name: spec.open(Transaction(MemoryBackend())) for name, spec in part.stores.items()})
    task.process("in", as_columns(pa.string())([("b", 1, 0), ("a", 1, 0), ("b", 1, 0)]))
    task.process("in", as_columns(pa.string())([("a", 1, 100)]))
    (run,) = task.take()["out"]
    assert isinstance(run, Columns)
    assert [(key.key, value) for key, value in zip(run.keys.to_pylist(), run.values.to_pylist(), strict=True)][-2:] == [
        ("a", 1),
        ("b", 2),
    ]


@pytest.mark.parametrize("windows", list(SLIDING))
def test_records_of_sliding_windows_in_time_never_become_objects(windows: str) -> None:
    (part,) = counting(SLIDING[windows]).subtopologies
    task = Task(part, {name: spec.open(Transaction(MemoryBackend())) for name, spec in part.stores.items()})
    for time in (50, 100):
        task.process(
            "in", as_columns(pa.string())([("b", 1, time), ("a", 1, time), ("b", 1, time), ("a", 1, time + 1)])
        )
    assert all(isinstance(run, Columns) for run in task.take()["out"])


def test_late_records_do_not_make_objects_of_a_run_of_sessions() -> None:
    (part,) = counting(SessionWindows(5, grace=2)).subtopologies
    task = Task(part, {name: spec.open(Transaction(MemoryBackend())) for name, spec in part.stores.items()})
    late, behind_grace = ("late", 1, 92), ("b", 1, 96)
    task.process("in", as_columns(pa.string())([("a", 1, 100), late, behind_grace, ("a", 1, 120)]))
    (run,) = task.take()["out"]
    assert isinstance(run, Columns)
    assert [(key.key, value) for key, value in zip(run.keys.to_pylist(), run.values.to_pylist(), strict=True)] == [
        ("b", 1),
        ("a", 1),
    ]
    assert [count for name, count in task.counters.items() if "dropped-late" in str(name)] == [1]


def test_only_a_record_that_meets_a_closed_session_becomes_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.processors.aggregations.window_fold._LEAST_PART", 1)
    (part,) = counting(SessionWindows(5, grace=2)).subtopologies
    task = Task(part, {name: spec.open(Transaction(MemoryBackend())) for name, spec in part.stores.items()})
    records = [("a", 1, 92), ("b", 1, 100), ("a", 1, 94), ("b", 1, 120), ("c", 1, 120)]
    task.process("in", as_columns(pa.string())(records))
    runs = task.take()["out"]
    assert [type(run) is Columns for run in runs if len(run)] == [True, True]
    out = [row for run in runs for row in zip(run.to_batch().keys, run.to_batch().values, strict=True)]
    assert [(*key, value) for key, value in out] == [("a", 92, 92, 1), ("a", 92, 94, 2), ("b", 100, 100, 1)]
