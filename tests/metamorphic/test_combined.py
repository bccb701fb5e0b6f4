"""Rows that are combined before they travel give what they give one by one: results, late rows and state."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.distribution import execution
from millpond.processors.verbs import aggregates as f
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.verb import INSTANT
from tests.metamorphic.checking import EXAMPLES, combined, histories
from tests.metamorphic.engine import Query
from tests.metamorphic.histories import SECOND, WAYS, Chain, Event, Way, arrivals, cut, rows_of, tables
from tests.metamorphic.keeping import BackendKeeper

SOURCE: Any = pa.schema(
    [("k", pa.string()), ("at", INSTANT), ("i", pa.int64()), ("x", pa.float64()), ("s", pa.string())]
)
CALLS: Mapping[str, AggregateCall] = {
    "n": f.count(),
    "some": f.count("x", where="i"),
    "total": f.sum("i"),
    "mean": f.avg("i"),
    "least": f.min("s"),
    "most": f.max("x"),
    "spread": f.var_pop("x"),
    "different": f.count_distinct("s"),
    "often": f.mode("s"),
    "middle": f.percentile("i", 0.5),
    "bits": f.bit_or("i"),
}
FLOATS: Mapping[str, AggregateCall] = {"total": f.sum("x"), "mean": f.avg("x"), "n": f.count()}
"""Their exact sums are the same, and lists of floats that are not."""

ROW = st.tuples(
    st.sampled_from(["hot", "hot", "hot", "hot", "a", "b", None]),
    st.integers(0, 40) | st.integers(10, 16),
    st.none() | st.integers(-9, 9),
    st.none() | st.sampled_from([0.0, -0.0, 0.1, 0.2, 0.3, 1e16, -1e16, 1e308, float("inf"), float("nan")]),
    st.none() | st.sampled_from(["", "x", "y", "ä"]),
)
WINDOWS: Mapping[str, Callable[[int, int], Any]] = {
    "none": lambda size, grace: None,
    "tumbling": lambda size, grace: TimeWindows(size * 1_000, grace=grace * 1_000),
    "sessions": lambda size, grace: SessionWindows(size * 1_000, grace=grace * 1_000),
}
Outcome = list[Any]


def outcome(made: Made, batches: Sequence[Sequence[Event]], way: Way, *, state: bool) -> Outcome:
    """Return, of each micro-batch, what comes out, what is late, and what is kept."""
    chain, random, found = Chain([made], {"a": SOURCE}, {"a": "at"}), Random(way.seed), Outcome()
    with TemporaryDirectory() as directory, closing(BackendKeeper(Path(directory), "memory")) as keeper:
        query = Query([made], [min(2, way.partitions[0])], keeper, random)
        for number, events in enumerate(batches):
            files = tables(chain, events, way.splits, Random(way.seed + number))
            dies = [number % 3] if way.deaths else []
            last = way.complete and number == len(batches) - 1
            some = query.run(files, complete=last, deaths=dies)
            rows = [row for table in some for row in rows_of(table)]
            late = Counter(map(str, query.told["out"][-1]))
            kept = [list(backend.scan()) for backend in keeper.backends] if state else []
            # NaN equals itself as text.
            found.append([Counter(str({**row, "sequence": 0}) for row in rows), late, kept])
    return found


def test_rows_that_are_combined_give_what_they_give_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Counter[bool]()
    took = execution._took_with_rest
    monkeypatch.setattr(execution, "_took_with_rest", lambda *args: _counted(taken, took(*args)))

    @histories(EXAMPLES)
    @given(
        st.lists(ROW, max_size=24), WAYS, st.sampled_from(list(WINDOWS)), st.integers(1, 7),
        st.sampled_from([0, 2, 9]), st.integers(0, 12), st.booleans(), st.booleans(),
    )  # fmt: skip
    def check(
        rows: list[Any], way: Way, kind: str, size: int, grace: int, late: int, floats: bool, final: bool
    ) -> None:
        events, random = [event(row) for row in rows], Random(way.seed)
        batches = cut(arrivals(events, {"a": late * SECOND}, random), way, random)
        window, calls = WINDOWS[kind](size, grace), FLOATS if floats else CALLS
        final = final and window is not None
        made = make_aggregate("out", Rows.of("a", SOURCE), calls, by="k", time="at", window=window, final=final)
        found = []
        for mode in MODES:
            with mode():
                found.append(outcome(made, batches, way, state=not floats))
        for other in found[1:]:
            assert other == found[0]

    check()
    assert taken[True] > taken[False]


def event(row: Sequence[Any]) -> Event:
    """Return a row as an event."""
    named = dict(zip(SOURCE.names, row, strict=True))
    at = (1_000 + named["at"]) * SECOND
    return Event("a", at, {**named, "at": at})


def _off() -> AbstractContextManager[Any]:
    return nullcontext()


MODES: Sequence[Callable[[], AbstractContextManager[Any]]] = (
    _off,
    lambda: combined(most_new=2.0),
    lambda: combined(most_new=0.2, often=3),
)
"""One by one; all that can be; those of hot keys."""


def _counted(taken: Counter[bool], one: bool) -> bool:
    taken[one] += 1
    return one
