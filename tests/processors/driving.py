"""Runs a topology over records: one at a time or in micro-batches, with or without restarts in between."""

import random
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from millpond.processors import KStream, KTable, Record, StreamsBuilder, Topology, TopologyDriver

Build = Callable[[StreamsBuilder], KTable | KStream]
"""Builds a stream or table from the topics that the records name."""


class Input(NamedTuple):
    """A record of a source topic."""

    topic: str
    key: Any
    value: Any
    timestamp: int


def text_topology(build: Build, **options: Any) -> Topology:
    """Return what ``build`` makes of topics with texts as keys and values, written to ``out``."""
    builder = StreamsBuilder(key_serde="string", value_serde="string", **options)
    build(builder).to("out")
    return builder.build()


def drive(
    build: Build,
    records: Sequence[Input],
    *,
    size: int = 1,
    backend: str = "memory",
    local_dir: Path | None = None,
    restart_every: int | None = None,
    upgrade_from: str | None = None,
) -> list[Record]:
    """Return the output of ``build`` for ``records``, in micro-batches of ``size``, taken in the order of arrival.

    With ``restart_every`` the driver is closed after so many records and another one opened on the same directory.
    """
    step = restart_every or len(records)
    output: list[Record] = []
    for begin in range(0, len(records), step):
        builder = StreamsBuilder(upgrade_from=upgrade_from, order="arrival")
        build(builder).to("out")
        with TopologyDriver(builder.build(), backend=backend, local_dir=local_dir) as driver:
            for start in range(begin, min(begin + step, len(records)), size):
                batch = records[start : min(start + size, begin + step)]
                for topic, run in groupby(batch, key=lambda record: record.topic):
                    driver.pipe_all(topic, [(record.key, record.value, record.timestamp) for record in run])
                output.extend(driver.read("out"))
    return output


def last_values(output: Sequence[Record]) -> dict[Any, Any]:
    """Return the last value of each key that is still there."""
    values = {record.key: record.value for record in output}
    return {key: value for key, value in values.items() if value is not None}


def random_records(
    seed: int, count: int, *, keys: str = "abc", step: int = 8, disorder: int = 30, topics: Sequence[str] = ("in",)
) -> list[Input]:
    """Return records with short values; times advance by up to ``step``, and records come up to ``disorder`` late."""
    chance = random.Random(seed)
    now, records = 200, []
    for _ in range(count):
        now += chance.randrange(step)
        timestamp = now - (chance.randrange(disorder) if disorder and chance.random() < 0.4 else 0)
        value = chance.choice(["x", "yy", "zzz"])
        records.append(Input(chance.choice(topics), chance.choice(keys), value, timestamp))
    return records
