"""Tasks that are apart, with nothing between them but blobs, give what the in-process driver gives."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import RecordError
from millpond.processors import (
    Batch,
    Consumed,
    EmitStrategy,
    Grouped,
    Joined,
    KGroupedStream,
    KTable,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    PunctuationType,
    Repartitioned,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    Task,
    TimeWindowedSerde,
    TimeWindows,
    Topology,
    TopologyDriver,
)
from millpond.processors.distribution import exchange, execution
from millpond.processors.distribution.exchange import COMPLETE, TICK, Blob, BlobWriter, gather, signal_blobs
from millpond.processors.distribution.execution import Decoder, Outputs, run_blobs, run_split
from millpond.processors.distribution.plan import Plan, make_plan
from millpond.processors.distribution.router import Route, Router, TaskNumbers
from millpond.processors.options.order import Order
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.order import lookup_order
from millpond.processors.runtime.order.time_order import merge
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.encoding.serdes import BYTES, INT64, MSGPACK, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.windows.windowed import Windowed

TEXT = Consumed("string", "string")
PARTITIONS = 3

Records = list[tuple[str, str, int]]


def update_counts() -> Topology:
    """Count words over all lines, and how often the count of a word with so many letters changed."""
    builder = StreamsBuilder()
    words = builder.stream("lines", TEXT).flat_map_values(str.split).select_key(lambda _, word: word)
    counts = words.group_by_key(Grouped("string", "string")).count()
    by_length = counts.to_stream().select_key(lambda word, _: len(word), key_serde="int64")
    by_length.group_by_key(Grouped("int64", "int64")).count().to("updates", Produced("int64", "int64"))
    return builder.build()


def numbered(plan: Plan) -> TaskNumbers:
    """Return the tasks numbered backwards: any numbering will do."""
    tasks = [(part.index, partition) for part in plan.parts for partition in range(plan.partitions)]
    return {task: 100 - i for i, task in enumerate(tasks)}


def open_stores(plan: Plan) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the stores of all tasks."""
    return {
        (part.index, partition): {name: spec.open(Transaction(MemoryBackend())) for name, spec in part.stores.items()}
        for stage in plan.stages
        for part in stage
        for partition in range(plan.partitions)
    }


def run_map_side(plan: Plan, numbers: TaskNumbers, splits: list[Records]) -> list[Blob]:
    (part,) = plan.map_side
    router, blobs = Router(plan, part, numbers), list[Blob]()
    for split, records in enumerate(splits):
        batch = Batch(*map(list, zip(*records, strict=True)))
        writer = BlobWriter(split)
        for outputs in run_split(Task(part, {}, split), "lines", [batch]):
            blobs += router.send(outputs, writer)
    return blobs


def run_stages(
    plan: Plan, numbers: TaskNumbers, blobs: list[Blob], stores: dict[tuple[int, int], dict[str, Any]]
) -> list[Outputs]:
    """Return the output of the last stage, with every task run alone; blobs for tasks of later stages pass through."""
    decoders = {topic: Decoder(topic, STRING, STRING) for topic in plan.topics}
    decoders |= {
        topic: Decoder.of_repartition_topic(topic, consumed) for topic, consumed in plan.internal_topics.items()
    }
    results = list[Outputs]()
    for stage in plan.stages:
        arrived = defaultdict[int, list[Blob]](list)
        for blob in blobs:
            arrived[blob.task].append(blob)
        results = []
        for part in stage:
            router = Router(plan, part, numbers)
            for partition in range(plan.partitions):
                task, writer = Task(part, stores[part.index, partition], partition), BlobWriter(partition)
                for outputs in run_blobs(task, arrived.pop(numbers[part.index, partition], []), decoders, 0):
                    results.append(outputs)
                    for blob in router.send(outputs, writer):
                        arrived[blob.task].append(blob)
        blobs = [blob for waiting in arrived.values() for blob in waiting]
    return results


def sent_to_tasks(plan: Plan, numbers: TaskNumbers, topic: str, splits: list[Records]) -> list[Blob]:
    """Return the records of a topic that no sub-topology of the map side reads."""
    blobs = list[Blob]()
    for split, records in enumerate(splits):
        keys, values, timestamps = map(list, zip(*records, strict=True))
        raw: Any = pa.array([key.encode() for key in keys])
        table = pa.table({"key": raw, "value": [value.encode() for value in values], "timestamp": timestamps})
        blobs += Route(plan, topic, numbers).send(table, raw, BlobWriter(split))
    return blobs


def batches_of(outputs: Outputs, topic: str) -> list[Batch]:
    return [part.to_batch() for part in outputs.parts(topic)]


def all_records(results: Iterable[Outputs], topic: str) -> list[tuple[Any, Any, int]]:
    return [
        record
        for outputs in results
        for part in batches_of(outputs, topic)
        for record in zip(part.keys, part.values, part.timestamps, strict=True)
    ]


def last_values(batches: Iterable[Batch]) -> dict[Any, Any]:
    return {key: value for batch in batches for key, value in zip(batch.keys, batch.values, strict=True)}


def test_a_chain_of_stages_gives_what_the_driver_gives() -> None:
    made = random.Random(5)
    lines = [(f"k{at}", " ".join(made.choices(["a", "bb", "cc", "dd", "eee"], k=4)), at) for at in range(200)]
    plan = make_plan(update_counts(), None, PARTITIONS)
    assert len(plan.stages) == 2
    numbers = numbered(plan)
    blobs = run_map_side(plan, numbers, [lines[::2], lines[1::2]])
    results = run_stages(plan, numbers, blobs, open_stores(plan))
    with TopologyDriver(update_counts()) as driver:
        driver.pipe_all("lines", lines)
        expected = last_values(driver.read_batches("updates"))
    assert last_values(part for outputs in results for part in batches_of(outputs, "updates")) == expected
    assert sum(expected.values()) == 800


WINDOWED: dict[str, Callable[[KGroupedStream], KTable]] = {
    "tumbling": lambda clicks: clicks.windowed_by(TimeWindows(10, grace=100)).count(),
    "cached": lambda clicks: clicks.windowed_by(TimeWindows(10, grace=100)).count(Materialized("counts", caching=True)),
    "mapped": lambda clicks: clicks.windowed_by(TimeWindows(10, grace=100)).count().map_values(lambda n: n + 100),
    "filtered": lambda clicks: clicks.windowed_by(TimeWindows(10, grace=100)).count().filter(lambda key, n: n % 2 == 1),
    "suppressed": lambda clicks: (
        clicks.windowed_by(TimeWindows(10, grace=0)).count().suppress(Suppressed.until_window_closes())
    ),
    "sessions": lambda clicks: clicks.windowed_by(SessionWindows(3, grace=100)).count(),
    "of another stream": lambda clicks: (
        clicks.windowed_by(TimeWindows(10, grace=100))
        .count()
        .to_stream()
        .to_table(Materialized("kept", value_serde="int64"))
    ),
}


def window_named(value: str) -> Windowed[str]:
    user, start, end = value.split()
    return Windowed(user, int(start), int(end))


def counts_named(right: Callable[[KGroupedStream], KTable], join_type: str) -> Topology:
    """Return rows with the counts in the windows that they name."""
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    counts = right(builder.stream("clicks").group_by_key())
    join = KTable.join if join_type == "inner" else KTable.left_join
    stored = Materialized("named", value_serde="string")
    named = join(builder.table("rows"), counts, lambda row, n: f"{row}: {n}", stored, foreign_key=window_named)
    named.to_stream().to("out")
    return builder.build()


@pytest.mark.parametrize("join_type", ["inner", "left"])
@pytest.mark.parametrize("right", WINDOWED)
def test_rows_find_those_of_a_windowed_table_by_foreign_key_in_whatever_task(right: str, join_type: str) -> None:
    made = random.Random(4)
    topology = counts_named(WINDOWED[right], join_type)
    plan = make_plan(topology, "out", PARTITIONS)
    numbers, stores = numbered(plan), open_stores(plan)
    users = ["ann", "ben", "cem", "dee", "eve", "fay"]
    clicks = [(user, "x", start * 10 + 4) for start in range(4) for user in users for _ in range(made.randrange(4))]
    rows = []
    for number in range(60):
        start = made.randrange(4) * 10
        ends = (start + 4, start + 4) if right == "sessions" else (start, start + 10)
        rows.append((f"row-{number % 30}", f"{made.choice(users)} {ends[0]} {ends[1]}", number))
    found: dict[str, str | None] = {}
    with TopologyDriver(topology) as driver:
        for some in ({"clicks": clicks[::2]}, {"rows": rows[:40]}, {"clicks": clicks[1::2], "rows": rows[40:]}):
            blobs = [blob for topic, one in some.items() for blob in sent_to_tasks(plan, numbers, topic, [one])]
            for record in all_records(run_stages(plan, numbers, blobs, stores), "out"):
                found[record[0]] = record[1]
            driver.pipe_inputs({topic: Batch(*map(list, zip(*one, strict=True))) for topic, one in some.items()})
        expected = last_values(driver.read_batches("out"))
    known = {key: value for key, value in expected.items() if value is not None}
    assert {key: value for key, value in found.items() if value is not None} == known
    assert any(not value.endswith("None") for value in known.values())


def test_windowed_keys_of_a_topic_are_found_where_its_records_go() -> None:
    builder = StreamsBuilder(value_serde="string")
    counts = builder.table("counts", Consumed(TimeWindowedSerde(STRING, 10), "string"))
    rows = builder.table("rows", TEXT)
    rows.join(counts, "{}{}".format, Materialized("named"), foreign_key=window_named).to("out")
    assert [node.name for node in builder.build().nodes.values() if getattr(node, "without_window", False)] == []


def sent(topology: Topology, topic: str, keys: list[bytes]) -> dict[int, list[bytes]]:
    """Return the keys that reach each task, by its number."""
    plan = make_plan(topology, None, PARTITIONS)
    records = pa.table({"key": keys, "value": keys, "timestamp": list(range(len(keys)))})
    reached = defaultdict[int, list[bytes]](list)
    for blob in Route(plan, topic, numbered(plan)).send(records, pa.array(keys), BlobWriter(0)):
        reached[blob.task] += [key for run in gather([blob]) for key in run.records.to_batch().keys]
    return reached


def test_a_record_goes_to_the_task_of_its_keys_partition() -> None:
    builder = StreamsBuilder()
    builder.stream("words", TEXT).group_by_key().count().to("counts")
    keys = [f"key-{i}".encode() for i in range(50)]
    assert sent(builder.build(), "words", keys) == {
        100 - partition: [key for key in keys if partition_of(key, PARTITIONS) == partition]
        for partition in range(PARTITIONS)
    }


def test_records_of_a_global_table_go_to_all_tasks() -> None:
    builder = StreamsBuilder()
    names = builder.global_table("names", TEXT)
    orders = builder.stream("orders", TEXT).group_by_key().count().to_stream()
    orders.join(names, lambda count, name: name, selector=lambda key, _: key).to("out", Produced("string", "string"))
    keys = [b"a", b"b", b"c"]
    assert sent(builder.build(), "names", keys) == {100: keys, 99: keys, 98: keys}


def test_a_decoder_reads_what_has_a_serde_and_takes_the_rest_as_it_is() -> None:
    run = Batch([b"a", None], [None, bytes(7) + b"\x05"], [1, 2])
    columns = Columns(pa.array(run.keys, pa.binary()), pa.array(run.values, pa.binary()), np.array(run.timestamps))
    for records in (run, columns):
        decoded = Decoder("t", STRING, INT64).decode(records)
        assert type(decoded) is type(records)
        assert (decoded.to_batch().keys, decoded.to_batch().values) == (["a", None], [None, 5])
        with pytest.raises(RecordError, match=r"topic 't': column 'key': bad key \(key=b'a'.*restart with the serdes"):
            Decoder("t", INT64, None).decode(records)
    assert Decoder("t", None, None).decode(run).values is run.values
    assert Decoder("t", None, None).decode(columns).values is columns.values
    packed = columns.with_values(pa.array([b"\x05", None], pa.binary()))
    decoded = Decoder("t", STRING, MSGPACK).decode(packed)
    assert isinstance(decoded, Batch)
    assert decoded.values == [5, None]


def final_counts() -> Topology:
    """Count clicks by user and 10 ms, and such counts of each size by 100 ms; nothing may come late."""
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    clicks = builder.stream("clicks").group_by_key().windowed_by(TimeWindows(10))
    counts = clicks.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to_stream()
    sizes = counts.map(lambda key, count: (str(count), key.key), key_serde="string", value_serde="string")
    by_size = sizes.group_by_key().windowed_by(TimeWindows(100)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    flat = by_size.count().to_stream().map(lambda key, count: (f"{key.key}@{key.start}", count), key_serde="string")
    flat.to("sizes", Produced("string", "int64"))
    return builder.build()


def test_complete_inputs_are_taken_in_the_order_of_time_and_everything_comes_out_of_all_stages() -> None:
    made = random.Random(3)
    clicks = [(made.choice(["ann", "ben", "cem", "dee"]), "x", made.randrange(1000)) for _ in range(400)]
    plan = make_plan(final_counts(), None, PARTITIONS)
    assert len(plan.stages) == 2
    numbers = numbered(plan)
    blobs = sent_to_tasks(plan, numbers, "clicks", [clicks[::2], clicks[1::2]])
    results = run_stages(plan, numbers, blobs + signal_blobs(COMPLETE, numbers.values()), open_stores(plan))
    counts = Counter((user, timestamp // 10) for user, _, timestamp in clicks)
    expected = Counter(f"{count}@{tens // 10 * 100}" for (_, tens), count in counts.items())
    assert {key: value for key, value, _ in all_records(results, "sizes")} == expected


def test_a_task_that_only_hears_that_its_inputs_are_complete_lets_go_what_waited() -> None:
    plan = make_plan(final_counts(), None, PARTITIONS)
    numbers, stores = numbered(plan), open_stores(plan)
    clicks = [("ann", "x", 3), ("ben", "x", 5), ("cem", "x", 7)]
    assert (
        all_records(run_stages(plan, numbers, sent_to_tasks(plan, numbers, "clicks", [clicks]), stores), "sizes") == []
    )
    markers = signal_blobs(COMPLETE, numbers.values())
    assert all_records(run_stages(plan, numbers, markers, stores), "sizes") == [("1@0", 3, 7)]
    assert all_records(run_stages(plan, numbers, markers, stores), "sizes") == []


class Alarm(Processor):
    """Forwards the wall-clock time, ten milliseconds after it was first woken."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self._ring)

    def process(self, batch: Batch) -> None:
        self.context.forward(batch)

    def _ring(self, now: int) -> None:
        self.context.forward(Batch([self.context.task_id], [b"ring"], [now]))


def test_a_tick_runs_tasks_to_which_no_record_has_ever_come() -> None:
    builder = StreamsBuilder(key_serde="bytes", value_serde="bytes")
    store = StoreSpec("kept", StoreKind.KEY_VALUE, BYTES, BYTES)
    builder.stream("in").process(Alarm, stores=[store]).to("out", Produced("bytes", "bytes"))
    (part,) = builder.build().subtopologies
    transaction = Transaction(MemoryBackend())
    rung, changed = [], []
    for now in (100, 109, 115, 119, 150):
        task = Task(part, {"kept": store.open(transaction)}, wall_clock=now)
        outputs = list(run_blobs(task, signal_blobs(TICK, [0]), {}, now))
        rung.append([list(run.to_batch().timestamps) for out in outputs for run in out.parts("out")])
        changed.append(transaction.changed_keys)
        transaction.commit()
    assert rung == [[], [], [[115]], [], [[150]]]
    assert changed == [1, 0, 1, 0, 1]


@pytest.mark.parametrize(("order", "complete"), [(Order.TIME, False), (Order.TIME, True), (Order.ARRIVAL, True)])
def test_what_state_has_made_keeps_its_order_within_each_key(order: Order, complete: bool) -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string", order=order)
    pairs = builder.table("left").join(builder.table("right"), lambda left, right: left + right)
    moved = pairs.to_stream().select_key(lambda key, value: "all")
    moved.repartition(Repartitioned("string", "string", name="moved")).to_table().to_stream().to("pairs")
    plan = make_plan(builder.build(), None, PARTITIONS)
    assert [sorted(part.derived_topics) for stage in plan.stages for part in stage] == [["moved-repartition"]] * 2
    numbers, stores = numbered(plan), open_stores(plan)
    run_stages(plan, numbers, sent_to_tasks(plan, numbers, "right", [[("k", "1", 30)]]), stores)
    blobs = sent_to_tasks(plan, numbers, "left", [[("k", "a", 5)]])
    blobs += sent_to_tasks(plan, numbers, "right", [[("k", "2", 10)]])
    signals = signal_blobs(COMPLETE, numbers.values()) if complete else []
    results = run_stages(plan, numbers, blobs + signals, stores)
    assert all_records(results, "pairs") == [("all", "a1", 30), ("all", "a2", 10)]


def test_topics_are_derived_if_state_took_part_in_what_they_carry() -> None:
    words, counts, updates = update_counts().subtopologies
    assert words.sinks.keys() | counts.sinks.keys() == words.internal_topics
    assert words.derived_topics == counts.derived_topics == updates.derived_topics == counts.sinks.keys()


def joined_tables(order: Order) -> Topology:
    builder = StreamsBuilder(order=order)
    left, right = (builder.table(topic, TEXT, Materialized(topic)) for topic in ("left", "right"))
    left.outer_join(right, lambda one, other: f"{one}/{other}").to("out", Produced("string", "string"))
    return builder.build()


@pytest.mark.parametrize("order", Order)
def test_inputs_in_longer_runs_give_the_same_in_windows_and_sections_of_any_size(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = joined_tables(order)
    plan = make_plan(made, "out", 1)
    ((part,),) = plan.stages
    rng = random.Random(3)
    inputs: dict[str, Records] = {
        topic: [(rng.choice("abcdefgh"), f"{at:03}", at + rng.randrange(9)) for at in range(200)]
        for topic in part.sources
    }
    batches = {topic: Batch(*map(list, zip(*some, strict=True))) for topic, some in inputs.items()}
    with TopologyDriver(made) as driver:
        for topic, run in merge(batches, order):
            for row in run.to_batch().rows():
                driver.pipe_batch(topic, row)
        expected = [tuple(record) for record in driver.read("out")]
    for window, section in ((1 << 18, 1 << 16), (50, 1 << 16), (7, 32), (1 << 18, 1)):
        for module in (exchange, execution):
            monkeypatch.setattr(module, "WINDOW_ROWS", window)
        monkeypatch.setattr(lookup_order, "SECTION", section)
        task = Task(part, {name: spec.open(Transaction(MemoryBackend())) for name, spec in part.stores.items()})
        decoders = {topic: Decoder(topic, STRING, STRING) for topic in part.sources}
        outputs = list(run_blobs(task, _blobs(list(inputs.values())), decoders, 0))
        found = [output.records["out"].to_batch() for output in outputs if "out" in output.records]
        records = [row for batch in found for row in zip(batch.keys, batch.values, batch.timestamps, strict=True)]
        assert records == expected
        assert len(found) > 1 or (window, section) != (7, 32)


def test_inputs_in_longer_runs_give_a_record_that_waits_what_has_arrived_before_the_table_forgets() -> None:
    """Of one key, a version comes after a record of a later time, and before what makes the table forget."""
    builder = StreamsBuilder(order=Order.ARRIVAL)
    table = builder.table("right", TEXT, Materialized.versioned("right", history_retention=10))
    joined = Joined(grace=0, within_history=True, tolerance=5, direction="forward")
    pairs = builder.stream("left", TEXT).left_join(table, lambda one, other: f"{one}/{other}", joined)
    pairs.to("out", Produced("string", "string"))
    ((part,),) = make_plan(builder.build(), "out", 1).stages
    stores: dict[str, Any] = {name: spec.open(Transaction(MemoryBackend())) for name, spec in part.stores.items()}
    found: list[tuple[Any, ...]] = []
    lefts: list[Records] = [[("a", "waits", 0)], [("a", "later", 5), ("b", "x", 7), ("b", "y", 9)]]
    rights: list[Records] = [
        [("c", "first", 0)],
        [("c", "r", 6), ("a", "met", 4), ("b", "s", 8), ("b", "t", 11), ("b", "u", 12)],
    ]
    decoders = {topic: Decoder(topic, STRING, STRING) for topic in part.sources}
    topics = list(part.sources)
    for one, other in zip(lefts, rights, strict=True):
        task = Task(part, stores)
        arrived = {"left": one, "right": other}
        for output in run_blobs(task, _blobs([arrived[topic] for topic in topics]), decoders, 0):
            for records in output.records.values():
                batch = records.to_batch()
                found += zip(batch.keys, batch.values, batch.timestamps, strict=True)
        stores["right"].stragglers.clear()
    assert found == [("a", "waits/met", 0)]


def _blobs(inputs: list[Records]) -> list[Blob]:
    writer, blobs = BlobWriter(0), list[Blob]()
    for number, records in enumerate(inputs):
        keys, values, times = zip(*records, strict=True)
        columns = [pa.array(map(str.encode, column), pa.binary()) for column in (keys, values)]
        table = pa.table([*columns, pa.array(times, pa.int64())], ["key", "value", "timestamp"])
        blobs += writer.cut(table, 0, number)
    return blobs
