"""The real Kafka Streams and the in-process driver answer the same to the same random records."""

from collections.abc import Iterable
from typing import Any

import pytest

from millpond.processors import TopologyDriver
from tests.kafka.client import Message
from tests.kafka.records import random_records
from tests.kafka.topologies import TOPOLOGIES, topology
from tests.kafka.witness import ask

SEEDS = range(2)

COMPARED = ("key", "value", "timestamp")
"""The fields of an output record."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_kafka_streams_and_millpond_give_the_same_records_of_each_key(name: str, seed: int) -> None:
    records = random_records(seed, name)
    expected = ask(name, records)
    assert expected
    assert comparable(name, answer(name, records)) == comparable(name, expected)


def answer(name: str, records: Iterable[tuple[str, Message]]) -> list[Any]:
    with TopologyDriver(topology(name)) as driver:
        for topic, (key, value, timestamp, _) in records:
            driver.pipe(topic, key, value, timestamp)
        return driver.read("out")


def comparable(name: str, messages: Iterable[Any]) -> dict[str, list[tuple[Any, ...]]]:
    """What came out for each key, in its order, but for what docs/differences-from-kafka-streams.md says."""
    sequences = by_key(messages)
    if name == "stream-stream":  # records without a partner come out sooner
        return {key: sorted(rows) for key, rows in sequences.items()}
    if name == "foreign-key":  # a row without a result may be told so again
        return {key: without_repeated_tombstones(rows) for key, rows in sequences.items()}
    return sequences


def without_repeated_tombstones(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    values = [None, *(row[COMPARED.index("value")] for row in rows)]
    return [
        row for row, before, value in zip(rows, values, values[1:], strict=False) if (before, value) != (None, None)
    ]


def by_key(messages: Iterable[Any]) -> dict[str, list[tuple[Any, ...]]]:
    """What came out, in its order, for each key."""
    sequences: dict[str, list[tuple[Any, ...]]] = {}
    for message in messages:
        sequences.setdefault(message.key, []).append(tuple(getattr(message, field) for field in COMPARED))
    return sequences
