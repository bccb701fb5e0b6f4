"""The topology and the input of the tests that run whole streams: orders rated and summed."""

import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from millpond.processors import (
    Consumed,
    Grouped,
    Materialized,
    Produced,
    StreamsBuilder,
    Topology,
    TopologyDriver,
)

SCHEMAS = {"orders": "customer string, at long, amount long, item string", "rates": "who string, at long, rate double"}
KEYS = {"orders": "customer", "rates": "who"}

Event = tuple[str, dict[str, Any]]
"""A topic and a row."""


def rated_orders() -> Topology:
    """Return orders joined with their customer's rate as of their time, then counted and summed by item."""
    builder = StreamsBuilder()
    rates = builder.table(
        "rates",
        Consumed("string", "msgpack", key="who", timestamp="at"),
        Materialized.versioned("rates", history_retention=10_000),
    )
    orders = builder.stream("orders", Consumed("string", "msgpack", key="customer", timestamp="at"))
    rated = orders.left_join(rates, lambda order, rate: {**order, "rate": None if rate is None else rate["rate"]})
    rated.to("rated", Produced(schema="key string, item string, amount long, rate double, timestamp long"))
    by_item = rated.select_key(lambda _, order: order["item"], key_serde="string")
    sums = by_item.group_by_key(Grouped("string", "msgpack")).aggregate(
        lambda: [0, 0],
        lambda _, order, total: [total[0] + 1, total[1] + order["amount"]],
        Materialized("sums", value_serde="msgpack"),
    )
    totals = sums.to_stream().map_values(lambda total: {"orders": total[0], "amount": total[1]}, value_serde="msgpack")
    totals.to("totals", Produced(schema="key string, orders long, amount long, timestamp timestamp"))
    return builder.build()


def letter_counts() -> Topology:
    """Return words counted; how often each letter's words were updated; and each word with that number.

    The words pass the first operator, which does not read them, on their way to the second.
    """
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "string"))
    by_word = words.map_values(str.lower).select_key(lambda _, word: word)
    counts = by_word.group_by_key(Grouped("string", "string")).count(Materialized("words"))
    by_letter = counts.to_stream().select_key(lambda word, _: word[0], key_serde="string")
    letters = by_letter.group_by_key(Grouped("string", "int64")).count(Materialized("letters"))
    initials = words.map_values(str.lower).select_key(lambda _, word: word[0])
    numbered = initials.left_join(letters, lambda word, count: f"{word} {count}")
    numbered.to("letters", Produced(schema="key string, value string"))
    return builder.build()


def random_events(seed: int, count: int) -> list[Event]:
    """Return rows of both topics, each at a time of its own, in the order of time."""
    rng = random.Random(seed)
    events: list[Event] = []
    for at in range(10, 10 * count + 1, 10):
        who = rng.choice(["ann", "bob", "cyd", "dan", "eve", "flo"])
        if rng.random() < 0.2:
            events.append(("rates", {"who": who, "at": at, "rate": rng.random()}))
        else:
            item = rng.choice(["tea", "rum", "ale"])
            events.append(("orders", {"customer": who, "at": at, "amount": rng.randrange(100), "item": item}))
    return events


def write_file(directory: Path, number: int, events: list[Event]) -> None:
    """Write one file for each topic, which appears whole, and which Spark reads after those of lower numbers."""
    for topic in SCHEMAS:
        (directory / topic).mkdir(parents=True, exist_ok=True)
        hidden = directory / topic / f".{number:03d}.parquet"
        pq.write_table(pa.Table.from_pylist([row for name, row in events if name == topic]), hidden)
        os.utime(hidden, (1_000_000_000 + number, 1_000_000_000 + number))
        os.replace(hidden, hidden.with_name(hidden.name[1:]))


def write_files(directory: Path, events: list[Event], files: int) -> None:
    """Write files: file i of each topic holds the rows of the i-th stretch of time."""
    step = -(-len(events) // files)
    for number in range(files):
        write_file(directory, number, events[number * step : (number + 1) * step])


def read_files(spark: SparkSession, directory: Path, files_per_batch: int = 1) -> dict[str, DataFrame]:
    """Return the streams of both topics."""
    return {
        topic: spark.readStream.schema(ddl)
        .option("maxFilesPerTrigger", files_per_batch)
        .parquet(str(directory / topic))
        for topic, ddl in SCHEMAS.items()
    }


def in_process(sink: str, events: Iterable[Event]) -> list[tuple[Any, Any, int]]:
    """Return what the in-process driver writes to ``sink``."""
    with TopologyDriver(rated_orders()) as driver:
        for topic, row in events:
            driver.pipe(topic, row[KEYS[topic]], row, row["at"])
        return [tuple(record) for record in driver.read(sink)]


def expected_totals(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    return sorted((key, value["orders"], value["amount"], at) for key, value, at in in_process("totals", events))


def totals(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows of the sink ``totals`` with their times in milliseconds."""
    return sorted((key, orders, amount, round(at.timestamp() * 1000)) for key, orders, amount, at in rows)
