"""Inputs in longer runs: the answers are those of the records one by one, and the runs are as long as they may be."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.processors import (
    Consumed,
    Joined,
    KStream,
    KTable,
    Materialized,
    Processor,
    PunctuationType,
    RecordProcessor,
    StreamsBuilder,
    TimeWindows,
    Topology,
    TopologyDriver,
)
from millpond.processors.options.order import Order
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.order.keyed_region import KeyedRegion
from millpond.processors.runtime.order.time_order import merge
from millpond.processors.runtime.promises import Promises
from millpond.processors.runtime.subtopology import Subtopology, found_once
from millpond.processors.runtime.tasks.task import Task
from millpond.processors.verbs.encoding.ordered_rows import with_order
from millpond.processors.verbs.sequenced import Sequenced
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import BYTES, MSGPACK, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from tests.drawing import tries

TEXT = Consumed("string", "int64")
Records = list[tuple[str, int | None, int]]
"""Key, value and timestamp."""


def pair(left: Any, right: Any) -> Any:
    return [left, right]


def table(builder: StreamsBuilder, topic: str = "table", history: int | None = None) -> KTable:
    materialized = Materialized(topic) if history is None else Materialized.versioned(topic, history_retention=history)
    return builder.table(topic, TEXT, materialized)


def stream(builder: StreamsBuilder, topic: str = "events") -> KStream:
    return builder.stream(topic, TEXT)


def one_join(history: int | None, *, left: bool = True) -> Callable[[StreamsBuilder], None]:
    def build(builder: StreamsBuilder) -> None:
        events, rates = stream(builder), table(builder, history=history)
        joined = events.left_join(rates, pair) if left else events.join(rates, pair)
        joined.to("out")

    return build


def two_tables(builder: StreamsBuilder) -> None:
    events = stream(builder).filter(lambda key, value: value != 1)
    events.left_join(table(builder), pair).left_join(table(builder, "other", 1000), pair).to("out")


def two_streams(builder: StreamsBuilder) -> None:
    rates = table(builder, history=1000)
    stream(builder).map_values(lambda value: value).left_join(rates, pair).to("out")
    stream(builder, "other").join(rates, pair).to("others")


def derived_table(builder: StreamsBuilder) -> None:
    rates = table(builder, history=1000).filter(lambda key, value: value % 2 == 0).map_values(lambda value: -value)
    stream(builder).left_join(rates, pair).to("out")


def table_with_an_output(builder: StreamsBuilder) -> None:
    rates = table(builder)
    rates.to_stream().to("others")
    stream(builder).left_join(rates, pair).to("out")


def counted_join(builder: StreamsBuilder) -> None:
    stream(builder).join(table(builder), pair, Joined("string", "int64")).group_by_key().count().to_stream().to("out")


def merged(builder: StreamsBuilder) -> None:
    rates = table(builder)
    stream(builder).left_join(rates, pair).merge(rates.to_stream()).to("out")


def one_topic(builder: StreamsBuilder) -> None:
    rates = table(builder)
    rates.to_stream().to("out")
    stream(builder).left_join(rates, pair).to("out")


JOINS = {"inner": KTable.join, "left": KTable.left_join, "outer": KTable.outer_join}


def tables(join: str, left: int | None, right: int | None) -> Callable[[StreamsBuilder], None]:
    def build(builder: StreamsBuilder) -> None:
        JOINS[join](table(builder, history=left), table(builder, "events", right), pair).to("out")

    return build


def three_tables(builder: StreamsBuilder) -> None:
    joined = table(builder).left_join(table(builder, "events"), pair)
    joined.outer_join(table(builder, "other"), pair).to("out")


def three_kept_tables(builder: StreamsBuilder) -> None:
    joined = table(builder).outer_join(table(builder, "events", 1000), pair, Materialized("joined"))
    joined.to_stream(changes_only=True).to("others")
    joined.left_join(table(builder, "other"), pair, Materialized("all")).to("out")


def packed(value: int | None) -> bytes:
    """Return a row whose order is its value, or a delete."""
    row = None if value is None else value.to_bytes()
    return with_order([b"" if row is None else row], [row])[0]


def ordered(builder: StreamsBuilder) -> None:
    spec = StoreSpec("orders", StoreKind.WINDOW, STRING, BYTES, retention=1001, window_size=1)
    rows = stream(builder, "table").map_values(packed)
    rows = rows.process(lambda: Sequenced("orders"), stores=[spec], keeps_key=True, value_serde=BYTES)
    stream(builder).left_join(rows.to_table(Materialized.versioned("rates", history_retention=1000)), pair).to("out")


def filtered(builder: StreamsBuilder) -> None:
    odd = table(builder).filter(lambda key, value: value % 2 == 1, Materialized("odd"))
    odd.outer_join(table(builder, "events").map_values(lambda value: -value), pair).to("out")


def history(builder: StreamsBuilder) -> None:
    store = Materialized.versioned("joined", history_retention=1000)
    left, right = table(builder, history=1000), table(builder, "events", 1000)
    left.outer_join(right, pair, store, history="complete").to("out")


def windowed(builder: StreamsBuilder) -> None:
    joined = table(builder).outer_join(table(builder, "events"), pair).to_stream()
    counted = joined.group_by_key().windowed_by(TimeWindows(6, grace=2)).count()
    counted.to_stream().map(lambda key, count: (key.key, [key.start, count])).to("out")


REGROUPED: Mapping[str, Callable[[StreamsBuilder], None]] = {
    "plain": one_join(None),
    "plain, inner": one_join(None, left=False),
    "versioned": one_join(1000),
    "versioned, short history": one_join(3),
    "two tables": two_tables,
    "two streams": two_streams,
    "derived table": derived_table,
    "table with an output": table_with_an_output,
    "counted": counted_join,
    "merged": merged,
    "one topic": one_topic,
    "history": history,
    "three tables": three_tables,
    "three tables, kept": three_kept_tables,
    "ordered": ordered,
    "filtered": filtered,
    "windowed": windowed,
    **{f"tables, {name}": tables(name, None, None) for name in JOINS},
    **{f"versioned tables, {name}": tables(name, 1000, 1000) for name in JOINS},
    "versioned tables, short history": tables("outer", 3, 3),
    "tables, one of them versioned": tables("left", 1000, None),
}


def grace(builder: StreamsBuilder) -> None:
    stream(builder).join(table(builder, history=1000), pair, Joined("string", "int64", grace=5)).to("out")


def cached(builder: StreamsBuilder) -> None:
    left = builder.table("table", TEXT, Materialized("table").with_caching())
    left.outer_join(table(builder, "events"), pair).to("out")


def shown(builder: StreamsBuilder) -> None:
    stream(builder).peek(lambda key, value: None).join(table(builder), pair).to("out")


def kept_history(builder: StreamsBuilder) -> None:
    store = Materialized.versioned("joined", history_retention=5)
    joined = table(builder).outer_join(table(builder, "events"), pair, store)
    joined.left_join(table(builder, "other"), pair).to("out")


class Peeking(RecordProcessor):
    """Reads the table under any key it likes."""

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        found = self.context.store("table").get("a")
        self.forward(key, [value, None if found is None else found.value], timestamp)


def own_processor(builder: StreamsBuilder) -> None:
    table(builder)
    stream(builder).process(Peeking, stores=["table"]).to("out")


class Retiming(RecordProcessor):
    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.forward(key, value, timestamp // 2)


def retimed(builder: StreamsBuilder) -> None:
    stream(builder).process(Retiming, keeps_key=True).left_join(table(builder, history=1000), pair).to("out")


class Ticking(Processor):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(5, PunctuationType.STREAM_TIME, lambda now: context.forward(Batch(["tick"], [now], [now])))

    def process(self, batch: Batch) -> None:
        self.context.forward(batch)


def punctuated(builder: StreamsBuilder) -> None:
    stream(builder).left_join(table(builder), pair).process(Ticking).to("out")


AS_BEFORE: Mapping[str, Callable[[StreamsBuilder], None]] = {
    "grace": grace,
    "cached": cached,
    "shown": shown,
    "kept history": kept_history,
    "own processor": own_processor,
    "retimed": retimed,
    "punctuated": punctuated,
}


def topology(build: Callable[[StreamsBuilder], None], order: Order = Order.ARRIVAL) -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde=MSGPACK, order=order)
    build(builder)
    return builder.build()


def batches(inputs: Mapping[str, Records]) -> dict[str, Batch]:
    return {topic: Batch(*map(list, zip(*records, strict=True))) for topic, records in inputs.items() if records}


def at_once(made: Topology, inputs: Iterable[dict[str, Batch]], **options: Any) -> Any:
    with TopologyDriver(made, **options) as driver:
        for micro_batch in inputs:
            driver.pipe_inputs(micro_batch)
        return results(made, driver)


def one_by_one(made: Topology, inputs: Iterable[dict[str, Batch]], **options: Any) -> Any:
    with TopologyDriver(made, **options) as driver:
        for micro_batch in inputs:
            in_order = {topic: micro_batch[topic] for topic in made.sources if topic in micro_batch}
            for topic, run in merge(in_order, made.order):
                for row in run.to_batch().rows():
                    driver.pipe_batch(topic, row)
        return results(made, driver)


def results(made: Topology, driver: TopologyDriver) -> Any:
    """Return the records of each sink, the counters and, in any order, the dead letters."""
    return {topic: driver.read(topic) for topic in made.sinks}, driver.counters, sorted(map(repr, driver.dead_letters))


def micro_batches(topics: Iterable[str]) -> st.SearchStrategy[list[dict[str, Records]]]:
    record = st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 5), st.integers(0, 30))
    in_order = st.lists(record, max_size=12).map(lambda records: sorted(records, key=lambda one: one[2]))
    return st.lists(
        st.fixed_dictionaries({topic: in_order | st.lists(record, max_size=12) for topic in topics}), max_size=3
    )


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("name", sorted({*REGROUPED, *AS_BEFORE} - {"cached"}))
def test_the_answers_are_those_of_the_records_one_by_one(name: str, order: Order) -> None:
    made = topology({**REGROUPED, **AS_BEFORE}[name], order)

    @settings(max_examples=tries(40), deadline=None)
    @given(micro_batches(made.sources))
    def check(inputs: list[dict[str, Records]]) -> None:
        given_ = list(map(batches, inputs))
        assert at_once(made, given_) == one_by_one(made, given_)

    check()


def runs(made: Topology, inputs: Mapping[str, Records]) -> list[tuple[str, int]]:
    """Return the runs that the only task gets: topic and length."""
    (part,) = made.subtopologies
    task = Task(part, {name: spec.open(Transaction(MemoryBackend())) for name, spec in part.stores.items()})
    in_order = {topic: batch for topic in part.sources for name, batch in batches(inputs).items() if name == topic}
    return [(topic, len(run)) for topic, run in merge(in_order, made.order, part.derived_topics, task.regroup)]


ALTERNATING: dict[str, Records] = {
    topic: [("abc"[at % 3] + topic, at, 2 * at + (topic == "events")) for at in range(9)]
    for topic in ("table", "events", "other")
}
"""No key is in two of the topics."""


@pytest.mark.parametrize("name", REGROUPED)
def test_inputs_without_common_keys_are_one_run_each(name: str) -> None:
    if "short history" in name:
        return
    made = topology(REGROUPED[name])
    (part,) = made.subtopologies
    found = Counter(topic for topic, _ in runs(made, ALTERNATING))
    assert found == dict.fromkeys(part.sources, 1)


@pytest.mark.parametrize("name", AS_BEFORE)
def test_inputs_that_meet_elsewhere_alternate_as_before(name: str) -> None:
    made = topology(AS_BEFORE[name])
    in_order = {topic: batch for topic in made.sources for name, batch in batches(ALTERNATING).items() if name == topic}
    assert runs(made, ALTERNATING) == [(topic, len(run)) for topic, run in merge(in_order)]


def test_a_versioned_table_goes_first_however_often_its_keys_are_looked_up() -> None:
    inputs: dict[str, Records] = {
        "table": [("a", at, 2 * at) for at in range(50)],
        "events": [("a", at, 2 * at + 1) for at in range(50)],
    }
    assert runs(topology(one_join(1000)), inputs) == [("table", 50), ("events", 50)]
    assert len(runs(topology(one_join(None)), inputs)) == 100


def test_two_streams_do_not_mind_each_other_where_they_look_up_the_same_keys() -> None:
    inputs = {**ALTERNATING, "other": ALTERNATING["events"]}
    assert sorted(runs(topology(two_streams), inputs)) == [("events", 9), ("other", 9), ("table", 9)]


def test_a_wave_ends_for_a_key_with_what_a_lookup_before_it_must_not_see() -> None:
    inputs: dict[str, Records] = {
        "table": [("a", 1, 1), ("b", 2, 3), ("c", 3, 5), ("a", 4, 7), ("b", 5, 9)],
        "events": [("b", 1, 2), ("c", 2, 6), ("a", 3, 8), ("c", 4, 10)],
    }
    assert runs(topology(one_join(None)), inputs) == [("table", 3), ("events", 4), ("table", 2)]
    late: dict[str, Records] = {**inputs, "table": [("a", 1, 1), ("b", 2, 3), ("b", 3, 1), ("b", 4, 9)]}
    assert runs(topology(one_join(1000)), late) == [("table", 2), ("events", 4), ("table", 2)]
    assert runs(topology(one_join(1000), Order.TIME), late) == [("table", 4), ("events", 4)]


def test_what_would_take_history_away_comes_in_its_turn() -> None:
    inputs: dict[str, Records] = {
        "table": [("a", at, 2 * at) for at in range(9)],
        "events": [("a", at, 2 * at + 1) for at in range(9)],
    }
    assert len(runs(topology(one_join(3)), inputs)) == 18


def test_a_version_that_a_waiting_record_may_find_comes_before_what_takes_its_history_away() -> None:
    """However near to their own times other joins look the table up."""

    def build(builder: StreamsBuilder) -> None:
        rates = table(builder, history=20)
        ahead = Joined("string", "int64", grace=8, tolerance=10, direction="forward", within_history=True)
        stream(builder).left_join(rates, pair, ahead).to("out")
        stream(builder, "other").left_join(rates, pair).to("others")

    inputs: dict[str, Records] = {
        "table": [("x", 1, 12), ("a", 2, 8), ("x", 3, 14), ("x", 3, 16), ("b", 4, 27)],
        "other": [("a", 1, 10), ("z", 1, 13), ("z", 2, 15), ("z", 3, 17)],
    }
    found = at_once(topology(build), [batches({"events": [("a", 1, 5)]}), batches(inputs)])
    assert [(key, value) for key, value, *_ in found[0]["out"]] == [("a", [1, 2])]


def test_what_a_cache_holds_back_comes_in_the_order_of_its_keys() -> None:
    made = topology(cached)
    inputs = batches({"events": [("a", 1, 0), ("b", 2, 2)], "table": [("b", 3, 1), ("a", 4, 3), ("b", 5, 4)]})
    assert [record[:2] for record in at_once(made, [inputs])[0]["out"]][-2:] == [("b", [5, 2]), ("a", [4, 1])]


def by_foreign_key(kind: str) -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    orders, customers = builder.table("orders"), builder.table("customers")
    join = {"inner": orders.join, "left": orders.left_join}[kind]
    joined = join(customers, pair, Materialized("joined", value_serde=MSGPACK), foreign_key=lambda order: order or None)
    joined.to("out")
    return builder.build()


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("kind", ["inner", "left"])
def test_a_foreign_key_join_gives_what_it_gives_where_its_inputs_alternate(
    kind: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = st.tuples(st.sampled_from("xyz"), st.sampled_from(["a", "b", "c", "", None]), st.integers(0, 30))
    customer = st.tuples(st.sampled_from("abc"), st.sampled_from(["Ada", "Ben", None]), st.integers(0, 30))
    both = st.fixed_dictionaries({"orders": st.lists(order, max_size=12), "customers": st.lists(customer, max_size=12)})
    made = by_foreign_key(kind)

    @settings(max_examples=tries(30 if backend == "memory" else 8), deadline=None)
    @given(st.lists(both, max_size=3))
    def check(inputs: list[dict[str, Any]]) -> None:
        given_ = list(map(batches, inputs))
        longer = at_once(made, given_, backend=backend)
        with monkeypatch.context() as patch:
            patch.setattr(Task, "regroup", None)
            assert longer == at_once(made, given_, backend=backend)

    check()


def odd_pair(left: Any, right: Any) -> Any:
    if left == 3 or right == 4:
        raise ValueError("bad pair")
    return [left, right]


def failing_tables(builder: StreamsBuilder) -> None:
    left, right = table(builder), table(builder, "events", 1000)
    joined = left.outer_join(right, odd_pair)
    joined.filter(lambda key, value: value[0] // (value[1] or 1) > 0).to("out")


def failing_stream(builder: StreamsBuilder) -> None:
    stream(builder).map_values(lambda value: 6 // value).left_join(table(builder), odd_pair).to("out")


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("build", [failing_tables, failing_stream])
@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_a_record_for_which_a_function_fails_is_left_out_wherever_it_comes(
    build: Callable[[StreamsBuilder], None], policy: str, order: Order
) -> None:
    made = topology(build, order)

    @settings(max_examples=tries(30), deadline=None)
    @given(micro_batches(made.sources))
    def check(inputs: list[dict[str, Records]]) -> None:
        given_ = list(map(batches, inputs))
        assert at_once(made, given_, on_error=policy) == one_by_one(made, given_, on_error=policy)

    check()


def part_of_a_join(history: int | None = None) -> Subtopology:
    builder = StreamsBuilder()
    one_join(history)(builder)
    (part,) = builder.build().subtopologies
    return part


def test_what_a_graph_and_promises_say_is_found_once_and_anew_for_other_promises() -> None:
    part, asked = part_of_a_join(), list[Mapping[str, Promises]]()

    def find(part: Subtopology, promises: Mapping[str, Promises]) -> int:
        asked.append(promises)
        return len(asked)

    promises = {name: Promises() for name in part.nodes}
    others = promises | {name: Promises(by_key=True) for name in part.nodes}
    given = [promises, dict(promises), others, dict(others), promises]
    assert [found_once(part, find, some) for some in given] == [1, 1, 2, 2, 3]
    assert asked == [promises, others, promises]


def test_tasks_of_later_micro_batches_go_by_what_the_first_has_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def regroups() -> bool:
        stores = {name: spec.open(Transaction(MemoryBackend())) for name, spec in part.stores.items()}
        return Task(part, stores).regroup is not None

    part = part_of_a_join(100)
    assert regroups()
    monkeypatch.setattr(KeyedRegion, "gates", None)
    assert regroups()
