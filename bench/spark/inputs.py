"""The rows that all contenders of a workload read: files, for each topic one or more per micro-batch.

Every row has a time of its own, later than those of the micro-batches before. So no answer depends on which of two rows
with the same time comes first, and no row is late, which Spark and Kafka Streams define differently. To Spark, one of
the very first moment of 1970 is late: its watermarks begin there. So time begins with the length of a micro-batch.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from millpond.bench.spark.shapes import (
    ACCOUNT,
    DEVICE,
    EVENT,
    LIMIT,
    ORDER,
    QUOTE,
    RATE,
    READING,
    SALE,
    TIER,
    TRADE,
    Inputs,
    Scale,
)
from millpond.errors import ConfigurationError

ORDERS_PER_CUSTOMER: Final = 10
ACCOUNTS_PER_SEGMENT: Final = 20
HOT_KEYS: Final = 60
"""The number of keys of trades and quotes, or fewer if there are fewer."""

HOT_SHARE: Final = 0.99
"""The share of rows that the hot key of skewed rows has, besides what falls to it among the others."""

Columns = Mapping[str, Any]
"""Arrow arrays by name."""

Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Source:
    """The source of one DataFrame.

    Attributes:
        name: of the source and of its directory.
        schema: its columns as Spark DDL.
    """

    name: str
    schema: str


@dataclass(frozen=True)
class Topic(Source):
    """A topic that ``write_inputs`` writes.

    Attributes:
        share: which part of the rows of a micro-batch belongs to it.
        draw: all columns but those of the time, given the numbers of the keys and a source of random values. The time
            is ``at``, in milliseconds, and where the schema has it ``since``, a timestamp.
    """

    share: float
    draw: Callable[[Numbers, np.random.Generator], Columns]


def events(share: float = 1.0) -> Topic:
    """Return the topic of amounts by user."""
    return Topic(
        "events",
        EVENT,
        share,
        lambda keys, rng: {"key": names_of("user", keys), "amount": pa.array(rng.integers(0, 100, len(keys)))},
    )


def rates(share: float) -> Topic:
    """Return the topic of rates by user."""
    return Topic(
        "rates", RATE, share, lambda keys, rng: {"key": names_of("user", keys), "rate": pa.array(rng.random(len(keys)))}
    )


def tiers(share: float) -> Topic:
    """Return the topic of rates by user, as a table in files has them: with timestamps."""
    return Topic("tiers", TIER, share, rates(share).draw)


def limits(share: float) -> Topic:
    """Return the topic of bounds by user."""
    return Topic(
        "limits",
        LIMIT,
        share,
        lambda keys, rng: {"key": names_of("user", keys), "bound": pa.array(rng.integers(0, 100, len(keys)))},
    )


def accounts() -> Topic:
    """Return the topic of changed accounts: new amounts, half with another of two segments; some are deletes."""
    return Topic(
        "accounts",
        ACCOUNT,
        1.0,
        lambda keys, rng: {
            "key": names_of("user", keys),
            "segment": names_of("segment", keys // ACCOUNTS_PER_SEGMENT + rng.integers(0, 2, len(keys))),
            "amount": pa.array(rng.integers(0, 100, len(keys))),
            "op": pa.array(np.where(rng.random(len(keys)) < 0.05, "delete", "update").tolist()),
        },
    )


def orders(share: float) -> Topic:
    """Return the topic of orders: their amount and their customer, who is always the same."""
    return Topic(
        "orders",
        ORDER,
        share,
        lambda keys, rng: {
            "key": names_of("order", keys),
            "customer": names_of("customer", keys // ORDERS_PER_CUSTOMER),
            "amount": pa.array(rng.integers(0, 100, len(keys))),
        },
    )


def customers(share: float) -> Topic:
    """Return the topic of rates by customer."""
    return Topic(
        "customers",
        RATE,
        share,
        lambda keys, rng: {
            "key": names_of("customer", keys // ORDERS_PER_CUSTOMER),
            "rate": pa.array(rng.random(len(keys))),
        },
    )


def sales() -> Topic:
    """Return the topic of sales by user, with a column of each of four types."""
    return Topic("sales", SALE, 1.0, lambda keys, rng: {"key": names_of("user", keys), **_drawn(SALE, len(keys), rng)})


def skewed_sales() -> Topic:
    """Return the topic of sales of which one user has 99 of 100."""

    def draw(keys: Numbers, rng: np.random.Generator) -> Columns:
        skewed = np.where(rng.random(len(keys)) < HOT_SHARE, 0, keys)
        return sales().draw(skewed, rng)

    return Topic("sales", SALE, 1.0, draw)


def readings(share: float) -> Topic:
    """Return the topic of wide rows by device."""
    return Topic(
        "readings",
        READING,
        share,
        lambda keys, rng: {"key": names_of("device", keys), **_drawn(READING, len(keys), rng)},
    )


def devices(share: float) -> Topic:
    """Return the topic of devices: a column of each type."""
    return Topic(
        "devices", DEVICE, share, lambda keys, rng: {"key": names_of("device", keys), **_drawn(DEVICE, len(keys), rng)}
    )


def trades(share: float) -> Topic:
    """Return the topic of trades of few shares."""
    return Topic("trades", TRADE, share, partial(_of_shares, TRADE))


def quotes(share: float) -> Topic:
    """Return the topic of quotes of few shares: of the rows that arrive in a second, several for each share."""
    return Topic("quotes", QUOTE, share, partial(_of_shares, QUOTE))


def write_inputs(
    place: Path,
    topics: Sequence[Topic],
    scale: Scale,
    batches: int,
    *,
    growing: bool = False,
    shuffled: bool = False,
    first: int = 0,
    seed: int = 1,
) -> None:
    """Write ``batches`` micro-batches below ``place``.

    Args:
        place: gets a directory for each topic.
        topics: what is read.
        scale: how many rows and files a micro-batch has, and how many keys there are.
        batches: how many micro-batches.
        growing: each micro-batch brings equally many new keys, so that the last one completes them. Otherwise all are
            there from the first on.
        shuffled: whether the rows of a micro-batch are in no order; otherwise they are in that of their times.
        first: the number of the first one; those before have been written.
        seed: of all chance.

    Raises:
        ConfigurationError: a micro-batch has fewer rows than it is to bring new keys.
    """
    rng = np.random.default_rng([seed, first])
    for topic in topics:
        (place / topic.name).mkdir(exist_ok=first > 0)
    for number in range(first, first + batches):
        keys = growing_keys(scale, number, first + batches, rng) if growing else rng.integers(0, scale.keys, scale.rows)
        rows = rng.permutation(scale.rows)
        ends = np.round(np.cumsum([topic.share for topic in topics]) * scale.rows).astype(int)
        for topic, chosen in zip(topics, np.split(rows, ends[:-1]), strict=True):
            own = chosen if shuffled else np.sort(chosen)
            columns = {**topic.draw(keys[own], rng), **_times(topic, (number + 1) * scale.rows + own)}
            write_micro_batch(place / topic.name, number, pa.table(columns), scale.files)


def _times(topic: Topic, millis: Numbers) -> Columns:
    at: Any = pa.array(millis)
    as_timestamps = {"since": at.cast(pa.timestamp("ms", "UTC"))} if "since timestamp" in topic.schema else {}
    return {"at": at, **as_timestamps}


def write_micro_batch(directory: Path, number: int, rows: pa.Table, files: int) -> None:
    """Write the rows of micro-batch ``number``, in equal parts, into files whose age tells their order."""
    ends = [len(rows) * part // files for part in range(files + 1)]
    for part, (first, end) in enumerate(pairwise(ends)):
        path = directory / f"{number:06d}-{part}.parquet"
        pq.write_table(rows.slice(first, end - first), path)
        age = 1_000_000_000 + number * files + part
        os.utime(path, (age, age))


def growing_keys(scale: Scale, number: int, batches: int, rng: np.random.Generator) -> Numbers:
    """Return the keys of micro-batch ``number`` of ``batches``: its share of new ones, and random earlier ones.

    Raises:
        ConfigurationError: there are fewer rows than new keys.
    """
    known, then = scale.keys * number // batches, scale.keys * (number + 1) // batches
    if then - known > scale.rows:
        raise ConfigurationError(
            f"{batches} micro-batches of {scale.rows:,} rows cannot bring {scale.keys:,} keys; give more rows or fewer "
            "keys"
        )
    again = rng.integers(0, max(then, 1), scale.rows - (then - known))
    return rng.permutation(np.concatenate([np.arange(known, then), again]))


def read_inputs(
    spark: SparkSession,
    place: Path,
    sources: Sequence[Source],
    scale: Scale,
    batches: int,
    static: Collection[str] = (),
) -> Inputs:
    """Return streams of the first ``batches`` micro-batches that have been written at this scale.

    The sources of the names in ``static`` are static: all of their rows are there from the beginning.
    """
    return {one.name: _read(spark, place, one, scale.files, batches, one.name in static) for one in sources}


def rows_of(place: Path, scale: Scale, topic: str, batches: int, columns: Sequence[str]) -> pa.Table:
    """Return columns of the first ``batches`` micro-batches of a topic, as one table in the order of its files."""
    return pa.concat_tables(
        pq.read_table(part, columns=list(columns))
        for number in range(batches)
        for part in sorted((place / topic).glob(f"{number:06d}-*.parquet"))
    )


def _read(spark: SparkSession, place: Path, source: Source, files: int, batches: int, static: bool) -> DataFrame:
    reader = spark.read if static else spark.readStream.option("maxFilesPerTrigger", files)
    numbers = ",".join(f"{number:06d}" for number in range(batches))
    reader = reader.schema(source.schema).option("pathGlobFilter", f"{{{numbers}}}-*.parquet")
    return reader.parquet(str(place / source.name))


def _of_shares(schema: str, keys: Numbers, rng: np.random.Generator) -> Columns:
    return {"key": names_of("share", keys % HOT_KEYS), **_drawn(schema, len(keys), rng)}


def _drawn(schema: str, rows: int, rng: np.random.Generator) -> Columns:
    """Return a column of random values for each column of the schema but the key and the time."""
    columns = (column.split() for column in schema.split(", "))
    return {name: _DRAWS[kind](rows, rng) for name, kind in columns if name not in ("key", "at")}


def _decimals(rows: int, rng: np.random.Generator) -> Any:
    """Return random numbers of the type decimal(12,2), up to 9,999.99."""
    words = np.zeros((rows, 2), dtype="<i8")
    words[:, 0] = rng.integers(0, 1_000_000, rows)
    return pa.Array.from_buffers(pa.decimal128(12, 2), rows, [None, pa.py_buffer(words.tobytes())])


_DRAWS: Final[Mapping[str, Callable[[int, np.random.Generator], Any]]] = {
    "long": lambda rows, rng: pa.array(rng.integers(0, 1_000_000, rows)),
    # Thousands of these have an exact sum, so all who add them up have the same average.
    "double": lambda rows, rng: pa.array(rng.integers(0, 1 << 20, rows) / 1024),
    "decimal(12,2)": _decimals,
    "string": lambda rows, rng: names_of("text", rng.integers(0, 1000, rows)),
    "timestamp": lambda rows, rng: pa.array(rng.integers(0, 1 << 50, rows), pa.timestamp("us", "UTC")),
    "boolean": lambda rows, rng: pa.array(rng.random(rows) < 0.5),
}
"""Random values of each type."""


def names_of(kind: str, keys: Numbers) -> Any:
    """Return a name for each key, whose order is that of the keys."""
    return pa.array([f"{kind}-{key:08d}" for key in keys.tolist()])
