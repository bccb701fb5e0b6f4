"""Tasks that are apart, with nothing between them but blobs, give what the in-process driver gives."""

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import RecordError
from millpond.processors import Batch, Consumed, Grouped, Produced, StreamsBuilder, Task, Topology, TopologyDriver
from millpond.processors.distribution.exchange import Blob, BlobWriter, Run, gather
from millpond.processors.distribution.execution import Decoder, Outputs, run_blobs, run_split
from millpond.processors.distribution.partitions import partition_of
from millpond.processors.distribution.plan import Plan, make_plan
from millpond.processors.distribution.router import Route, Router, TaskNumbers
from millpond.stores.memory import MemoryBackend
from millpond.stores.serdes import INT64, STRING
from millpond.stores.transaction import Transaction

TEXT = Consumed("string", "string")
PARTITIONS = 3

Records = list[tuple[str, str, int]]


def update_counts() -> Topology:
    """Words counted over all lines, and how often the count of a word with so many letters changed."""
    builder = StreamsBuilder()
    words = builder.stream("lines", TEXT).flat_map_values(str.split).select_key(lambda _, word: word)
    counts = words.group_by_key(Grouped("string", "string")).count()
    by_length = counts.to_stream().select_key(lambda word, _: len(word), key_serde="int64")
    by_length.group_by_key(Grouped("int64", "int64")).count().to("updates", Produced("int64", "int64"))
    return builder.build()


def numbered(plan: Plan) -> TaskNumbers:
    """The tasks numbered backwards: any numbering will do."""
    tasks = [(part.index, partition) for part in plan.parts for partition in range(plan.partitions)]
    return {task: 100 - i for i, task in enumerate(tasks)}


def run_map_side(plan: Plan, numbers: TaskNumbers, splits: list[Records]) -> list[Blob]:
    (part,) = plan.map_side
    router, blobs = Router(plan, part, numbers), list[Blob]()
    for split, records in enumerate(splits):
        batch = Batch(*map(list, zip(*records, strict=True)))
        writer = BlobWriter(split)
        for outputs in run_split(Task(part, {}, split), "lines", [batch]):
            blobs += router.send(outputs, writer)
    return blobs


def run_stages(plan: Plan, numbers: TaskNumbers, blobs: list[Blob]) -> list[Outputs]:
    """What comes out of the last stage, with every task run alone."""
    decoders = {
        topic: Decoder.of_repartition_topic(topic, consumed) for topic, consumed in plan.internal_topics.items()
    }
    results = list[Outputs]()
    for stage in plan.stages:
        arrived = defaultdict[int, list[Blob]](list)
        for blob in blobs:
            arrived[blob.task].append(blob)
        blobs, results = [], []
        for part in stage:
            router = Router(plan, part, numbers)
            for partition in range(plan.partitions):
                stores = {name: spec.open(Transaction(MemoryBackend())) for name, spec in part.stores.items()}
                task, writer = Task(part, stores, partition), BlobWriter(partition)
                for outputs in run_blobs(task, arrived[numbers[part.index, partition]], decoders, lambda: 0):
                    results.append(outputs)
                    blobs += router.send(outputs, writer)
    return results


def last_values(batches: Iterable[Batch]) -> dict[Any, Any]:
    return {key: value for batch in batches for key, value in zip(batch.keys, batch.values, strict=True)}


def test_a_chain_of_stages_gives_what_the_driver_gives() -> None:
    made = random.Random(5)
    lines = [(f"k{at}", " ".join(made.choices(["a", "bb", "cc", "dd", "eee"], k=4)), at) for at in range(200)]
    plan = make_plan(update_counts(), None, PARTITIONS)
    assert len(plan.stages) == 2
    numbers = numbered(plan)
    results = run_stages(plan, numbers, run_map_side(plan, numbers, [lines[::2], lines[1::2]]))
    with TopologyDriver(update_counts()) as driver:
        driver.pipe_all("lines", lines)
        expected = last_values(driver.read_batches("updates"))
    assert last_values(outputs["updates"] for outputs in results if outputs) == expected
    assert sum(expected.values()) == 800


def sent(topology: Topology, topic: str, keys: list[bytes]) -> dict[int, list[bytes]]:
    """The keys that reach each task, by its number."""
    plan = make_plan(topology, None, PARTITIONS)
    records = pa.table({"key": keys, "value": keys, "timestamp": list(range(len(keys)))})
    reached = defaultdict[int, list[bytes]](list)
    for blob in Route(plan, topic, numbered(plan)).send(records, keys, BlobWriter(0)):
        reached[blob.task] += [key for run in gather([blob]) for key in run.keys]
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
    run = Run(0, [b"a", None], [None, bytes(7) + b"\x05"], [1, 2])
    assert Decoder("t", STRING, INT64).decode(run).keys == ["a", None]
    assert Decoder("t", STRING, INT64).decode(run).values == [None, 5]
    assert Decoder("t", None, None).decode(run).values is run.values
    with pytest.raises(RecordError, match=r"topic 't': column 'key': bad key \(key=b'a'.*restart with the serdes"):
        Decoder("t", INT64, None).decode(run)
