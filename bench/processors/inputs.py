"""The records that go through a topology, and the records of the table that it joins, by reproducible chance.

Rule of this module: what it makes follows from the sizes alone, so that all contenders get the same records.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from millpond.bench.processors.cases import Value
from millpond.bench.runs.asked import check_least
from millpond.processors import Batch


@dataclass(frozen=True)
class Sizes:
    """The number of records to send, and of keys among them.

    Args:
        records: how many are measured.
        keys: distinct ones among them.
        batch_rows: records of a micro-batch.
        warm_up: records before those that are measured; whole micro-batches of them are sent.
        seed: of all chance.
        step: milliseconds from a record to the next.

    Raises:
        ConfigurationError: a number makes no sense.
    """

    records: int
    keys: int
    batch_rows: int
    warm_up: int = 0
    seed: int = 1
    step: int = 1000

    def __post_init__(self) -> None:
        check_least(self, keys=1, records=1, batch_rows=1, warm_up=0, seed=0)

    @property
    def warm_up_batches(self) -> int:
        """Micro-batches that are not measured."""
        return -(-self.warm_up // self.batch_rows)

    @property
    def total(self) -> int:
        """All records, with those that are not measured."""
        return self.warm_up_batches * self.batch_rows + self.records

    @property
    def batch_lengths(self) -> list[int]:
        """Records of each micro-batch that is measured."""
        return [min(self.batch_rows, self.records - start) for start in range(0, self.records, self.batch_rows)]

    def batches(self) -> list[Batch]:
        """Return the records, in micro-batches."""
        made = random.Random(self.seed)
        rows = ((f"key-{made.randrange(self.keys):07d}", _value(made), i * self.step) for i in range(self.total))
        return list(_batched(rows, self.batch_rows))

    def table(self, versions: int) -> list[Batch]:
        """Return every key ``versions`` times, spread over the time of the records."""
        made = random.Random(self.seed + 1)
        step = self.total * self.step // max(versions, 1)
        rows = ((f"key-{i:07d}", _value(made), step * version) for version in range(versions) for i in range(self.keys))
        return list(_batched(rows, self.batch_rows))


def _value(made: random.Random) -> Value:
    return {
        "carrier": made.choice(("UA", "B6", "DL", "AA")),
        "flight": made.randrange(10_000),
        "distance": made.random() * 3000,
        "delayed": made.random() < 0.2,
        "tail": f"N{made.randrange(99_999)}",
    }


def _batched(rows: Iterator[tuple[str, Value, int]], size: int) -> Iterator[Batch]:
    while some := list(islice(rows, size)):
        keys, values, timestamps = (list(column) for column in zip(*some, strict=True))
        yield Batch(keys, values, timestamps)
