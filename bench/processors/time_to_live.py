"""The cost of a time to live for a table of latest rows, as ``latest`` keeps it: ``python -m`` this module, ``--help``.

Rule of this module: every run has the same rows in the same batches. What differs is the ttl: none, one that nothing
outlives, and one that each batch makes as many keys outlive as it brings.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from millpond.processors import Columns, Materialized, StreamsBuilder, Topology, TopologyDriver
from millpond.stores.typed.versions.late_puts import LatePuts

_VALUE_BYTES: Final = 100


def latest(ttl: int | None) -> Topology:
    """Return the topology of the verb, on keys and values of bytes; a batch is one unit of time."""
    builder = StreamsBuilder(key_serde="bytes", value_serde="bytes")
    kept = Materialized.versioned("latest", history_retention=1, late_puts=LatePuts.VALID, ttl=ttl)
    builder.table("input", materialized=kept).to_stream(changes_only=True).to("out")
    return builder.build()


def batches(keys: int, size: int, updates: int) -> Iterator[Columns]:
    """Yield every key once, and then updates of the keys that were updated the longest ago."""
    random = np.random.default_rng(1)
    for number in range(keys // size + updates):
        places = (np.arange(size) + number * size) % keys
        data = pa.array([b"%012d" % place for place in places.tolist()], pa.binary())
        drawn = random.integers(0, 256, (size, _VALUE_BYTES), np.uint8)
        values = pa.array([row.tobytes() for row in drawn], pa.binary())
        yield Columns(data, values, np.full(size, number, np.int64))


def measured(ttl: int | None, backend: str, keys: int, size: int, updates: int) -> tuple[float, float]:
    """Return microseconds of processor time a row: of rows that bring new keys, and of updates."""
    spent = [0.0, 0.0]
    with (
        tempfile.TemporaryDirectory() as directory,
        TopologyDriver(latest(ttl), backend=backend, local_dir=Path(directory)) as driver,
    ):
        for number, columns in enumerate(batches(keys, size, updates)):
            begun = time.process_time()
            driver.pipe_batch("input", columns)
            driver.read_runs("out")
            spent[number * size >= keys] += time.process_time() - begun
    return spent[0] / keys * 1e6, spent[1] / (size * updates) * 1e6


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each ttl."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="lmdb")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=50_000, help="rows of a micro-batch")
    parser.add_argument("--updates", type=int, default=20, help="micro-batches of updates")
    chosen = parser.parse_args(arguments)
    rounds = chosen.keys // chosen.batch
    print("ttl,backend,keys,new_us_per_row,update_us_per_row")
    for name, ttl in (("none", None), ("longer", 4 * rounds), ("shorter", max(1, rounds // 2))):
        new, update = measured(ttl, chosen.backend, chosen.keys, chosen.batch, chosen.updates)
        print(f"{name},{chosen.backend},{chosen.keys},{new:.2f},{update:.2f}")


if __name__ == "__main__":
    main()
