"""An outer join by foreign key has a table more: the right rows that no left row names."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import TopologyError
from millpond.processors import Batch, KTable, Materialized, StreamsBuilder, Topology, TopologyDriver
from millpond.stores.specs.store_spec import StoreKind
from tests.drawing import tries
from tests.processors.driving import last_values

TEXT: Final = Materialized(value_serde="string")
SINKS: Final = ("named", "unnamed")


class Change(NamedTuple):
    """An update of the left table, whose values are what rows name, or of the right one."""

    topic: str
    key: str
    value: str | None


def pair(one: Any, other: Any) -> str:
    return f"{one}/{other}"


def pairs(keys: Any, one: Any, other: Any) -> Any:
    return pa.array(map(pair, one.to_pylist(), other.to_pylist()), pa.string())


def joined(declared: str, stored: Materialized | None = None, *, vectorized: bool = False) -> Topology:
    """Return the topology; ``declared`` says whether both tables are also joined by key, and so in the same tasks."""
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    a, b = builder.table("A"), builder.table("B", materialized=stored)
    if declared == "joined before":
        a.left_join(b, pair)
    named, unnamed = outer(a, b, vectorized=vectorized)
    named.to("named")
    unnamed.to("unnamed")
    if declared == "joined after":
        a.left_join(b, pair)
    return builder.build()


def named(_: Any, values: Any) -> Any:
    return values


def outer(a: KTable, b: KTable, *, vectorized: bool) -> tuple[KTable, KTable]:
    if vectorized:
        return a.outer_join_on(b, pairs, TEXT, foreign_key=named, vectorized=True)
    return a.outer_join_on(b, pair, TEXT, foreign_key=lambda value: value or None)


CHANGES = st.lists(
    st.builds(Change, st.just("A"), st.sampled_from("123"), st.sampled_from(["x", "y", "z", None]))
    | st.builds(Change, st.just("B"), st.sampled_from("xyz"), st.sampled_from(["one", "two", None])),
    max_size=14,
)
STORES: Final[dict[str, Callable[[], Materialized | None]]] = {
    "timestamped": lambda: None,
    "plain": lambda: Materialized("b", StoreKind.KEY_VALUE),
    "versioned": lambda: Materialized.versioned("b", history_retention=100),
    "cached": lambda: Materialized("b").with_caching(),
}


@pytest.mark.parametrize("declared", ["apart", "joined before", "joined after"])
@pytest.mark.parametrize("vectorized", [False, True])
@settings(max_examples=tries(60), deadline=None, derandomize=True, database=None)
@given(changes=CHANGES, cuts=st.lists(st.integers(0, 14)), backend=st.sampled_from(["memory", "lmdb", "rocksdb"]),
       store=st.sampled_from([*STORES]), die=st.booleans())  # fmt: skip
def test_any_cut_and_restart_leaves_the_rows_that_nobody_names(
    tmp_path_factory: pytest.TempPathFactory,
    declared: str,
    vectorized: bool,
    changes: list[Change],
    cuts: list[int],
    backend: str,
    store: str,
    die: bool,
) -> None:
    lasts = die and backend != "memory"
    directory = tmp_path_factory.mktemp("outer") if lasts else None
    told: dict[str, list[Any]] = {sink: [] for sink in SINKS}
    edges = sorted({0, *(cut for cut in cuts if cut < len(changes)), len(changes)})
    batches = [list(enumerate(changes))[first:last] for first, last in pairwise(edges)]
    for some in [[one] for one in batches] if lasts else [batches]:
        topology = joined(declared, STORES[store](), vectorized=vectorized)
        with TopologyDriver(topology, backend=backend, local_dir=directory) as driver:
            for batch in some:
                driver.pipe_inputs(by_topic(batch))
                for sink in SINKS:
                    told[sink] += driver.read(sink)
    left, right = (table(changes, topic) for topic in "AB")
    assert last_values(told["named"]) == {key: pair(name, right.get(name)) for key, name in left.items()}
    assert last_values(told["unnamed"]) == {key: row for key, row in right.items() if key not in left.values()}
    assert all(one.value != other.value or one.timestamp < other.timestamp for one, other in repeated(told["unnamed"]))


def by_topic(batch: Sequence[tuple[int, Change]]) -> dict[str, Batch]:
    found: dict[str, list[tuple[Any, ...]]] = {}
    for time, (topic, key, value) in batch:
        found.setdefault(topic, []).append((key, value, time))
    return {topic: Batch(*map(list, zip(*rows, strict=True))) for topic, rows in found.items()}


def table(changes: Sequence[Change], topic: str) -> dict[str, str]:
    last = {one.key: one.value for one in changes if one.topic == topic}
    return {key: value for key, value in last.items() if value is not None}


def repeated(records: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return each record with the one of its key before it."""
    last: dict[Any, Any] = {}
    found = []
    for record in records:
        found += [(last[record.key], record)] if record.key in last else []
        last[record.key] = record
    return found


def test_a_row_that_is_named_for_a_moment_within_a_micro_batch_is_not_deleted_but_as_new_as_that() -> None:
    changes = [(1, Change("B", "x", "one")), (2, Change("A", "1", "x")), (3, Change("A", "1", None))]
    with TopologyDriver(joined("apart")) as driver:
        driver.pipe_inputs(by_topic(changes))
        assert [tuple(record) for record in driver.read("unnamed")] == [("x", "one", 3)]
        driver.pipe_inputs(by_topic([(4, Change("A", "2", "x")), (5, Change("A", "3", "x"))]))
        assert [tuple(record) for record in driver.read("unnamed")] == [("x", None, 5)]
        driver.pipe_inputs(by_topic([(6, Change("A", "2", None))]))
        assert driver.read("unnamed") == []


def test_a_version_that_comes_late_changes_nothing(tmp_path: Path) -> None:
    with TopologyDriver(joined("apart", STORES["versioned"]()), local_dir=tmp_path) as driver:
        driver.pipe("B", "x", "new", 9)
        driver.pipe("B", "x", "old", 5)
        assert [tuple(record) for record in driver.read("unnamed")] == [("x", "new", 9)]


def test_a_stream_is_refused() -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    with pytest.raises(TopologyError, match="can be joined with a table, not with"):
        builder.table("A").outer_join_on(builder.stream("B"), pair, foreign_key=str)  # type: ignore[arg-type]
