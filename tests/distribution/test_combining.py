"""Records that are combined before they travel give what they give one by one; which are combined follows from both."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.processors import Batch, Grouped, KStream, KTable, Materialized, StreamsBuilder, Task
from millpond.processors.distribution import combining
from millpond.processors.distribution.combining import Combining, Sent, combiner_of, of_input, pays
from millpond.processors.distribution.exchange import Blob, BlobWriter, Form, gather, gather_partials
from millpond.processors.distribution.execution import Decoder, run_blobs, run_split
from millpond.processors.distribution.plan import Plan, make_plan
from millpond.processors.distribution.router import Route, Router
from millpond.processors.options.windows import TimeWindows
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import INT64, MSGPACK, STRING
from tests.drawing import tries

CACHED = Materialized("counts", caching=True)
Topic = list[tuple[str | None, int | None, int]]


def plan_of(build: Callable[[KStream], KTable | KStream], partitions: int = 2) -> Plan:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    build(builder.stream("in")).to("out")
    return make_plan(builder.build(), None, partitions)


def by_key(stream: KStream) -> KTable:
    return stream.group_by_key().count(CACHED)


def by_value(stream: KStream) -> KTable:
    grouped = stream.group_by(lambda key, value: value, Grouped("int64", "msgpack"))
    return grouped.count(CACHED).filter(lambda value, count: count != 2)


def sent(plan: Plan, splits: list[Topic], combine: Combining | None) -> Iterator[Blob]:
    numbers = {(part.index, at): at for part in plan.parts for at in range(plan.partitions)}
    for number, records in enumerate(splits):
        keys, values, times = (list(column) for column in zip(*records, strict=True))
        writer = BlobWriter(number)
        if plan.map_side:
            router = Router(plan, plan.map_side[0], numbers)
            for outputs in run_split(Task(plan.map_side[0], {}), "in", [Batch(keys, values, times)]):
                yield from router.send(outputs, writer)
            continue
        columns: list[Any] = [pa.array(keys, pa.string()), pa.array(values, pa.int64()), pa.array(times, pa.int64())]
        table, route = pa.table(columns, ["key", "value", "timestamp"]), Route(plan, "in", numbers)
        for part, form in [Sent(table)] if combine is None else combine.split(table):
            keys_of: Any = pa.array([(key or "").encode() for key in part["key"].to_pylist()], pa.binary())
            yield from route.send(part, keys_of, writer, form)


def results(plan: Plan, batches: list[list[Topic]], combine: Combining | None = None) -> Iterator[list[Any]]:
    """Yield, for each micro-batch, what comes out and what is stored and counted then, by task."""
    ((part,),) = plan.stages
    engines = [MemoryBackend() for _ in range(plan.partitions)]
    decoders = {"in": Decoder("in", None, None)}
    decoders |= {topic: Decoder.of_repartition_topic(topic, how) for topic, how in plan.internal_topics.items()}
    for splits in batches:
        arrived = defaultdict[int, list[Blob]](list)
        for blob in sent(plan, splits, combine):
            arrived[blob.task].append(blob)
        for at, engine in enumerate(engines):
            transaction = Transaction(engine)
            stores = {name: spec.open(transaction) for name, spec in part.stores.items()}
            task = Task(part, stores, at)
            found = [run.records["out"].to_batch() for run in run_blobs(task, arrived[at], decoders, 0) if run.records]
            records = [row for run in found for row in zip(run.keys, run.values, run.timestamps, strict=True)]
            for store in stores.values():
                store.flush()
            transaction.commit()
            yield [sorted(records), sorted(task.counters.items()), list(engine.scan())]


RECORD = st.tuples(st.sampled_from(["a", "b", "", "ä", None]), st.sampled_from([1, 2, 3, None]), st.integers(0, 20))
SPLITS = st.lists(st.lists(RECORD, min_size=1, max_size=12), min_size=1, max_size=3)


@pytest.mark.parametrize("build", [by_key, by_value])
def test_counts_of_combined_records_are_those_of_the_records(
    build: Callable[[KStream], KTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(build)

    @settings(deadline=None, max_examples=tries(40))
    @given(st.lists(SPLITS, min_size=1, max_size=3), st.randoms(use_true_random=False))
    def check(batches: list[list[Topic]], choice: Any) -> None:
        monkeypatch.setattr(combining, "FEWEST", 1_000)
        expected = list(results(plan, batches))
        monkeypatch.setattr(combining, "FEWEST", 1)
        monkeypatch.setattr(combining, "pays", lambda sample, most_new: choice.random() < 0.5)
        monkeypatch.setattr(combining, "hot_keys", lambda sample: sample.filter(_some(len(sample), choice)))
        assert list(results(plan, batches, of_input(plan, "in", Decoder("in", None, None)))) == expected

    check()


def _some(size: int, choice: Any) -> Any:
    return pa.array([choice.random() < 0.5 for _ in range(size)], pa.bool_())


def windowed(stream: KStream) -> KTable:
    return stream.group_by_key().windowed_by(TimeWindows(5, grace=5)).count(CACHED)


COMBINED: dict[str, Callable[[KStream], KTable | KStream]] = {
    "by key": by_key,
    "by another key": by_value,
    "mapped afterward": lambda stream: by_key(stream).map_values(str),
}
NOT_COMBINED: dict[str, Callable[[KStream], KTable | KStream]] = {
    "each update": lambda stream: stream.group_by_key().count(),
    "windows": windowed,
    "versions": lambda stream: stream.group_by_key().count(Materialized.versioned("counts", history_retention=9)),
    "those that expire": lambda stream: stream.group_by_key().count(Materialized("counts", caching=True, ttl=9)),
    "a user's reducer": lambda stream: stream.group_by_key().reduce(max, CACHED),
    "another reader": lambda stream: by_key(stream).join(stream.group_by_key().count(), lambda one, other: one),
    "a look-up": lambda stream: stream.join(by_key(stream), lambda value, count: count),
    "a task behind": lambda stream: by_key(stream).to_stream().select_key(lambda key, _: key[:1]).repartition(),
    "old values": lambda stream: by_key(stream).group_by(lambda key, count: (key[:1], count)).count(),
    "two inputs": lambda stream: stream.merge(stream.map_values(str)).group_by_key().count(CACHED),
}


@pytest.mark.parametrize("name", [*COMBINED, *NOT_COMBINED])
def test_records_are_combined_only_where_nobody_could_tell(name: str) -> None:
    plan = plan_of({**COMBINED, **NOT_COMBINED}[name])
    topics = [topic for stage in plan.stages for part in stage for topic in part.sources]
    assert [combiner_of(plan, topic) is not None for topic in topics] == [name in COMBINED] * len(topics)


@pytest.mark.parametrize("name", ["by key", "each update", "those that expire", "a user's reducer"])
def test_a_task_minds_the_order_of_records_only_where_somebody_could_tell(name: str) -> None:
    ((part,),) = plan_of({**COMBINED, **NOT_COMBINED}[name]).stages
    task = Task(part, {store: spec.open(Transaction(MemoryBackend())) for store, spec in part.stores.items()})
    assert task.minds_ties("in") is (name == "a user's reducer")
    assert task.minds_order("in") is (name != "by key")


def keyed(keys: list[int], values: Any = None) -> pa.Table:
    return pa.table({"key": keys, "value": keys if values is None else values, "timestamp": keys})


def test_records_are_combined_if_they_have_few_keys() -> None:
    hot = [at if at % 4 else 0 for at in range(8_000)]
    for rows_a_key, combined in ((1, False), (2, False), (10, True), (100, True)):
        keys = np.random.default_rng(rows_a_key).permutation(np.arange(8_000) // rows_a_key).tolist()
        assert pays(pa.array(keys[:1000]), 0.6) is combined
    assert not pays(pa.array(np.random.default_rng(1).permutation(hot)[:1000]), 0.6)


def test_a_hot_key_is_combined_whatever_keys_there_are_beside_it() -> None:
    made = of_input(plan_of(by_key), "in", Decoder("in", None, None))
    assert made is not None
    keys = [0 if at % 10 < 3 else at for at in range(8_000)]
    found = {form: records["key"].to_pylist() for records, form in made.split(keyed(keys))}
    assert found == {Form.PARTIALS: [0], Form.RECORDS: [key for key in keys if key]}
    rare = [0 if at % 20 == 0 else at for at in range(8_000)]
    assert [form for _, form in made.split(keyed(rare))] == [Form.RECORDS]


def test_records_that_the_task_could_not_read_travel_as_they_are() -> None:
    plan, good = plan_of(by_key), [b"\0" * 8] * 2_000
    keys = [b"k"] * 2_000
    for serdes, values, combined in (
        ((STRING, INT64), good, True),
        ((STRING, INT64), [*good[1:], b"bad"], False),
        ((STRING, MSGPACK), good, False),
    ):
        table = pa.table({"key": keys, "value": values, "timestamp": list(range(2_000))})
        made = of_input(plan, "in", Decoder("in", *serdes))
        assert made is not None
        assert [form is Form.PARTIALS for _, form in made.split(table)] == [combined]


def test_few_records_are_not_looked_at() -> None:
    made = of_input(plan_of(by_key), "in", Decoder("in", None, None))
    assert made is not None
    assert [part.form for part in made.split(keyed([0] * 999))] == [Form.RECORDS]
    assert [part.records["timestamp"].to_pylist() for part in made.split(keyed([0] * 999 + [5]))] == [[0, 5]]


@pytest.mark.parametrize("build", [by_key, by_value])
def test_one_record_of_each_key_travels(build: Callable[[KStream], KTable]) -> None:
    plan = plan_of(build)
    topic: Topic = [("a", 7, at) for at in range(2_000)]
    blobs = list(sent(plan, [topic], of_input(plan, "in", Decoder("in", None, None))))
    assert [run.records.to_batch().values for run in gather_partials(blobs)] == [[INT64.serialize(2_000)]]
    assert list(gather(blobs)) == []


def test_whether_records_that_have_several_keys_are_combined_is_decided_for_each_of_their_keys() -> None:
    """Records of few keys are combined, others travel as they are, and each is there once for each of its keys."""
    made = of_input(plan_of(by_key), "in", Decoder("in", None, None), copies=3)
    assert made is not None
    own, few, only = keyed(list(range(2_000))), keyed([at % 7 for at in range(2_000)]), keyed([-1] * 2_000)
    found = {form: records for records, form in made.split(pa.concat_tables([own, few, only]))}
    keys: dict[Form, list[Any]] = {form: records["key"].to_pylist() for form, records in found.items()}
    assert sorted(keys[Form.RECORDS]) == list(range(2_000))
    assert sorted(keys[Form.PARTIALS]) == [-1, 0, 1, 2, 3, 4, 5, 6]
