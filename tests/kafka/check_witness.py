"""The real Kafka Streams and the in-process driver answer the same to the same random records."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from millpond.processors import TopologyDriver
from tests.kafka.client import Message
from tests.kafka.records import random_records
from tests.kafka.topologies import TOPOLOGIES, topology
from tests.kafka.witness import Witness

SEEDS = range(2)

COMPARED = ("key", "value", "timestamp", "headers")
"""The fields of an output record."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_kafka_streams_and_millpond_give_the_same_records_in_the_same_order(
    name: str, seed: int, witness: Witness
) -> None:
    records = random_records(seed, name)
    expected = witness.ask(name, records)
    assert expected
    assert comparable(name, records, answer(name, records)) == [fields(message) for message in expected]


@pytest.mark.parametrize("seed", SEEDS)
def test_records_that_wait_while_others_come_out_do_so_in_the_same_order_but_never_later(
    seed: int, witness: Witness
) -> None:
    """Kafka Streams next looks when the last of those that wait has done so long enough, not the first."""
    name = "stream-stream"
    records = random_records(seed, name, bursts=False)
    expected, actual = witness.ask(name, records), answer(name, records)
    assert pairs(actual) == pairs(expected)
    alone, expected_alone = without_partner(actual), without_partner(expected)
    assert [fields(row)[:3] for row in alone] == [fields(row)[:3] for row in expected_alone]
    delays = [number(late) - number(row) for row, late in zip(alone, expected_alone, strict=True)]
    assert min(delays) == 0 < max(delays)


def answer(name: str, records: Iterable[tuple[str, Message]]) -> list[Any]:
    with TopologyDriver(topology(name)) as driver:
        for topic, (key, value, timestamp, headers) in records:
            driver.pipe(topic, key, value, timestamp, headers=headers)
        return driver.read("out")


def comparable(name: str, records: Sequence[tuple[str, Message]], messages: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return the output of Millpond, without what it alone has by docs/differences-from-kafka-streams.md.

    In a foreign-key join it alone has the tombstone of a row that keeps its foreign key, where there is no foreign row.
    Kafka 3.9.0 had it too; later releases tell only rows that change their foreign key.
    """
    rows = [fields(message) for message in messages]
    if name != "foreign-key":
        return rows
    told_again = [(records[number][1].key, None, *records[number][1][2:]) for number in still_unmatched(records)]
    for row in told_again:
        rows.remove(row)
    return rows


def still_unmatched(records: Sequence[tuple[str, Message]]) -> list[int]:
    """Return which records of ``left`` name the same foreign key as their row before, which has no row in ``right``."""
    tables: dict[str, dict[str, str | None]] = {"left": {}, "right": {}}
    numbers = []
    for number, (topic, message) in enumerate(records):
        before, now = tables[topic].get(message.key), message.value
        tables[topic][message.key] = now
        if topic == "left" and before and now and before[:1] == now[:1] and tables["right"].get(now[:1]) is None:
            numbers.append(number)
    return numbers


def pairs(messages: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [fields(message) for message in messages if not message.value.endswith("-null")]


def without_partner(messages: Iterable[Any]) -> list[Any]:
    return [message for message in messages if message.value.endswith("-null")]


def number(message: Any) -> int:
    """Return the number of the record that made this one come out, whose headers it has."""
    return int(message.headers[0][1])


def fields(message: Any) -> tuple[Any, ...]:
    return tuple(getattr(message, field) for field in COMPARED)
