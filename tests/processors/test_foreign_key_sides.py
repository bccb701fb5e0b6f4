"""A foreign-key join finds the same in its right table, in whatever tasks the two tables are (KIP-213).

Kafka Streams reads the right table where it is, also where that is with the left one. Millpond then has a copy of it in
tasks of its own, so that Spark can run the join. ``_where_it_is`` makes the topology of Kafka Streams.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millpond.processors import (
    Batch,
    Grouped,
    KTable,
    Materialized,
    OnError,
    Record,
    StreamsBuilder,
    Suppressed,
    Topology,
    TopologyDriver,
)
from millpond.stores.specs.store_spec import StoreKind
from tests.drawing import tries
from tests.processors.driving import Input, last_values

TEXT = Materialized.with_serdes(None, "string")
DECLARED = ["apart", "joined before", "joined after"]

Build = Callable[[KTable, KTable], KTable]
"""Makes the right table of the tables ``A`` and ``B``."""


def _pair(one: Any, other: Any) -> str:
    return f"{one}/{other}"


def _where_it_is(builder: StreamsBuilder) -> Topology:
    """Return the topology in which the right table is read where it is, although its tasks get what they have sent."""
    builder._graph._at_build.clear()
    return builder.build()


def _joined(
    right: Build = lambda a, b: b,
    *,
    declared: str = "apart",
    stored: Materialized | None = None,
) -> StreamsBuilder:
    """Return the join of ``A`` with what ``right`` makes, at the key that ``A`` has as its value."""
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    a, b = builder.table("A"), builder.table("B", materialized=stored)
    table = right(a, b)
    if declared == "joined before":
        a.left_join(b, _pair)
    a.join(table, _pair, TEXT, foreign_key=lambda value: value).to("out")
    if declared == "joined after":
        a.left_join(b, _pair)
    return builder


def _of_topics(*records: tuple[str, str, str | None, int]) -> dict[str, Batch]:
    """Return records by topic, as one micro-batch."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for topic, *record in records:
        found.setdefault(topic, []).append(tuple(record))
    return {topic: Batch(*map(list, zip(*rows, strict=True))) for topic, rows in found.items()}


def _out(driver: TopologyDriver, topic: str, key: str, value: str | None, time: int) -> list[tuple[Any, ...]]:
    driver.pipe(topic, key, value, time)
    return [tuple(record) for record in driver.read("out")]


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("declared", DECLARED)
def test_a_row_that_is_not_there_is_transformed_whatever_else_is_joined(declared: str, backend: str) -> None:
    builder = _joined(lambda a, b: b.transform_values(lambda key, value: f"{value}!"), declared=declared)
    with TopologyDriver(builder.build(), backend=backend) as driver:
        assert _out(driver, "A", "a", "v0", 5) == [("a", "v0/None!", 5)]
        assert _out(driver, "B", "v0", "there", 6) == [("a", "v0/there!", 6)]
        assert _out(driver, "B", "v0", None, 7) == [("a", "v0/None!", 7)]
        assert _out(driver, "A", "a", "v1", 8) == [("a", "v1/None!", 8)]


def test_a_deleted_row_is_not_found_although_its_table_told_nobody() -> None:
    """As in Kafka Streams, a table that is joined with itself tells twice of a new row, and never of a deleted one."""
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    table = builder.table("T")
    names = {"v1": "k1", "v5": "k0"}
    table.join(table.join(table, _pair), _pair, TEXT, foreign_key=names.get).to("out")
    with TopologyDriver(builder.build()) as driver:
        assert _out(driver, "T", "k0", "v1", 1) == []
        told = [("k0", "v1/v5/v5", 2), ("k0", "v1/v5/v5", 2), ("k1", "v5/v1/v1", 2)]
        assert _out(driver, "T", "k1", "v5", 2) == told
        assert _out(driver, "T", "k0", None, 3) == [("k0", None, 3)]
        assert _out(driver, "T", "k9", "v5", 5) == []


@pytest.mark.parametrize("declared", DECLARED)
def test_a_row_of_a_cached_table_is_found_as_it_is_at_the_end_of_a_micro_batch(declared: str) -> None:
    stored = Materialized("b").with_caching()
    builder = _joined(lambda a, b: b.join(b, _pair), declared=declared, stored=stored)
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_inputs(_of_topics(("B", "x", "one", 1), ("B", "x", "two", 2), ("A", "a", "x", 3)))
        assert last_values(driver.read("out")) == {"a": "x/two/two"}
        assert _out(driver, "B", "x", None, 4) == []
        assert _out(driver, "A", "b", "x", 5) == []


@pytest.mark.parametrize("declared", DECLARED)
def test_a_store_without_times_takes_no_part_in_the_time_of_a_result(declared: str) -> None:
    builder = _joined(declared=declared, stored=Materialized("b", StoreKind.KEY_VALUE))
    with TopologyDriver(builder.build()) as driver:
        assert _out(driver, "B", "x", "late", 9) == []
        assert _out(driver, "A", "a", "x", 5) == [("a", "x/late", 5)]


@pytest.mark.parametrize("declared", DECLARED)
def test_a_suppressed_row_is_found_as_it_has_come_out(declared: str) -> None:
    def right(a: KTable, b: KTable) -> KTable:
        return b.transform_values(lambda key, value: f"{value}!").suppress(Suppressed.until_time_limit(10))

    with TopologyDriver(_joined(right, declared=declared).build()) as driver:
        assert _out(driver, "A", "a", "x", 1) == [("a", "x/None!", 1)]
        assert _out(driver, "B", "x", "one", 2) == []
        assert _out(driver, "A", "b", "x", 3) == [("b", "x/None!", 3)]
        assert _out(driver, "B", "y", "two", 12) == [("a", "x/one!", 2), ("b", "x/one!", 3)]


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_a_suppressed_row_of_a_table_joined_with_itself_is_found_as_it_has_come_out(backend: str) -> None:
    """In its place, Kafka Streams finds the old value of the second update: "y/x", which never was a row."""
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    a = builder.table("A")
    twice = a.join(a, _pair, Materialized("twice", value_serde="string"))
    suppressed = twice.suppress(Suppressed.until_time_limit(4))
    twice.join(suppressed, _pair, TEXT, foreign_key=lambda value: "a").to("out")
    with TopologyDriver(builder.build(), backend=backend) as driver:
        assert _out(driver, "A", "a", "x", 0) == []
        assert _out(driver, "A", "a", "y", 4)[-1] == ("a", "y/y/y/y", 4)


@pytest.mark.parametrize("declared", DECLARED)
def test_a_value_for_which_a_function_fails_is_counted_once(declared: str) -> None:
    def right(a: KTable, b: KTable) -> KTable:
        table = b.map_values(lambda value: str(1 // int(value)))
        return table.join(table, lambda one, other: _pair(one, 1 // int(other)))

    topology = _joined(right, declared=declared).build()
    with TopologyDriver(topology, on_error=OnError.DEAD_LETTER) as driver:
        for value in ("0", "1", "9"):
            driver.pipe("B", "x", value, 1)
        assert sum(n for what, n in driver.counters.items() if what.endswith("dropped-user-error")) == 3
        assert len(driver.dead_letters) == 3


@pytest.mark.parametrize("declared", ["joined before", "joined after"])
def test_no_task_gets_what_it_has_sent(declared: str) -> None:
    assert _where_it_is(_joined(declared=declared)).loops
    assert not _joined(declared=declared).build().loops


def test_what_is_declared_first_changes_no_store() -> None:
    before, after = (_joined(declared=declared).build() for declared in ("joined before", "joined after"))
    assert [len(part.stores) for part in before.subtopologies] == [len(part.stores) for part in after.subtopologies]


def test_a_topology_that_was_built_stays_as_it_is() -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    a, b = builder.table("A"), builder.table("B")
    a.join(b, _pair, TEXT, foreign_key=lambda value: value).to("out")
    apart = builder.build()
    told = apart.describe()
    a.left_join(b, _pair)
    copied = builder.build()
    assert apart.describe() == told
    assert copied.describe() == builder.build().describe() != told


class Step(NamedTuple):
    """Makes a table: what of, by which operator, and whether it is kept."""

    operator: str
    first: int
    second: int
    kept: bool


STEPS = ("map", "transform", "filter", "join", "left join", "outer join", "suppress")
STORES = ("", "plain", "versioned", "cached", "aggregated")


def _store(kind: str, name: str) -> Materialized | None:
    if kind == "plain":
        return Materialized(name, StoreKind.KEY_VALUE)
    if kind == "versioned":
        return Materialized.versioned(name, history_retention=20)
    return Materialized(name).with_caching() if kind == "cached" else None


def _short(*values: Any) -> str:
    return "".join(map(str, values))[-4:]


def _made(tables: list[KTable], topics: list[str], step: Step, number: int) -> KTable:
    one, other = tables[step.first % len(tables)], tables[step.second % len(tables)]
    stored = Materialized(f"store-{number}", value_serde="string") if step.kept else None
    if step.operator == "map":
        return one.map_values(lambda value: _short(value, number), stored)
    if step.operator == "transform":
        return one.transform_values(lambda key, value: _short(key, value), stored)
    if step.operator == "filter":
        return one.filter(lambda key, value: len(value) % 3 != number % 3, stored)
    if step.operator == "suppress":
        # Of a row that changes twice at a time, Kafka Streams may find a value behind it that never was.
        twice = len(set(topics[-1])) < len(topics[-1])
        return one if one.versioned or twice else one.suppress(Suppressed.until_time_limit(4))
    join = {"join": one.join, "left join": one.left_join, "outer join": one.outer_join}[step.operator]
    return join(other, _short, stored or TEXT)


def _sources(topics: list[str], step: Step) -> str:
    """Return the topics whose records change the step's table, each as often as a record does."""
    one, other = topics[step.first % len(topics)], topics[step.second % len(topics)]
    return one + other if step.operator.endswith("join") else one


def _random(
    steps: Sequence[Step],
    sides: tuple[int, int],
    stores: Sequence[str],
    kind: str,
    unrelated: Sequence[tuple[int, int, int]] = (),
    order: str = "time",
) -> StreamsBuilder:
    """Return a foreign-key join of two of the tables that the steps make.

    Args:
        steps: the steps.
        sides: which tables, counted from the last one.
        stores: which stores ``A`` and ``B`` are kept in.
        kind: of the foreign-key join.
        unrelated: after how many steps two other tables are joined; after all of them, behind the foreign-key join.
        order: in which order tasks take records.
    """
    builder = StreamsBuilder(key_serde="string", value_serde="string", order=order)
    tables, topics = [], ["A", "B"]
    for topic, store in zip("AB", stores, strict=True):
        if store == "aggregated":
            grouped = builder.stream(topic).group_by_key(Grouped("string", "string"))
            tables.append(grouped.reduce(_short, TEXT))
        else:
            tables.append(builder.table(topic, materialized=_store(store, topic)))
    for number, step in enumerate(steps):
        _join_beside(tables, unrelated, number)
        topics.append(_sources(topics, step))
        tables.append(_made(tables, topics, step, number))
    left, right = (tables[-1 - side % len(tables)] for side in sides)
    join = {"inner": left.join, "left": left.left_join}[kind]
    join(right, _short, TEXT, foreign_key=lambda value: "abc"[len(value) % 3]).to("out")
    _join_beside(tables, unrelated, len(steps))
    return builder


def _join_beside(tables: list[KTable], unrelated: Sequence[tuple[int, int, int]], number: int) -> None:
    for place, first, second in unrelated:
        if place == number:
            tables[first % len(tables)].left_join(tables[second % len(tables)], _short)


def _run(topology: Topology, records: Sequence[Input], size: int = 1) -> list[list[Record]]:
    """Return what comes out of each micro-batch of ``size`` records."""
    outputs = []
    with TopologyDriver(topology) as driver:
        for start in range(0, len(records), size):
            if size == 1:
                driver.pipe(*records[start])
            else:
                driver.pipe_inputs(_of_topics(*records[start : start + size]))
            outputs.append(driver.read("out"))
    return outputs


def _by_key(output: list[Record]) -> list[Record]:
    """Return the records of a micro-batch, those of each key in their order."""
    return sorted(output, key=lambda record: record.key)


def _ends(outputs: Sequence[Sequence[Record]]) -> list[dict[str, str]]:
    """Return the rows after each micro-batch."""
    return [last_values([record for output in outputs[: end + 1] for record in output]) for end in range(len(outputs))]


_numbers = st.integers(0, 7)
_programs = st.lists(st.builds(Step, st.sampled_from(STEPS), _numbers, _numbers, st.booleans()), max_size=4)
_values = st.sampled_from(["x", "yy", "zzz", None])
_records = st.lists(
    st.builds(Input, st.sampled_from("AB"), st.sampled_from("abc"), _values, st.integers(0, 12)), max_size=12
)
_random_joins = {
    "steps": _programs,
    "sides": st.tuples(_numbers, _numbers),
    "stores": st.tuples(st.sampled_from(STORES), st.sampled_from(STORES)),
    "kind": st.sampled_from(["inner", "left"]),
    "records": _records,
}


@settings(max_examples=tries(100), deadline=None)
@given(**_random_joins)
def test_record_for_record_answers_are_those_of_a_table_that_is_read_where_it_is(
    steps: list[Step], sides: tuple[int, int], stores: tuple[str, str], kind: str, records: list[Input]
) -> None:
    # Of several stores behind the right table, each record changes one: else it may tell of a row more or less often.
    builder = _random([step._replace(kept=False) for step in steps], sides, stores, kind)
    outputs = _run(builder.build(), records)
    assert list(map(_by_key, outputs)) == list(map(_by_key, _run(_where_it_is(builder), records)))


@settings(max_examples=tries(100), deadline=None)
@given(**_random_joins, size=st.integers(1, 6), order=st.sampled_from(["time", "arrival"]))
def test_at_the_end_of_each_micro_batch_its_rows_are_those_of_a_table_that_is_read_where_it_is(
    steps: list[Step],
    sides: tuple[int, int],
    stores: tuple[str, str],
    kind: str,
    records: list[Input],
    size: int,
    order: str,
) -> None:
    # The copy of a cached table is as of the micro-batch before until the updates come out.
    assume("cached" not in stores)
    builder = _random(steps, sides, stores, kind, order=order)
    ends = _ends(_run(builder.build(), records, size))
    assert ends == _ends(_run(_where_it_is(builder), records, size))


@settings(max_examples=tries(100), deadline=None)
@given(**_random_joins, unrelated=st.lists(st.tuples(st.integers(0, 4), _numbers, _numbers), min_size=1, max_size=3))
def test_joins_beside_it_change_no_answer_wherever_they_are_declared(
    steps: list[Step],
    sides: tuple[int, int],
    stores: tuple[str, str],
    kind: str,
    records: list[Input],
    unrelated: list[tuple[int, int, int]],
) -> None:
    ends = _ends(_run(_random(steps, sides, stores, kind, unrelated).build(), records))
    assert ends == _ends(_run(_random(steps, sides, stores, kind).build(), records))
