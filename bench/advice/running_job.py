"""The description of a running query on Spark, as far as its state tells: rows, their sizes, and rows of a commit.

Rule of this module: it only reads, and it says how it knows. What state does not tell is no business of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from millpond.adapters.inspect.checkpoint.spark_checkpoint import SparkCheckpoint
from millpond.errors import ConfigurationError
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.reading import read_all_tables
from millpond.stores.durability.storage.storage import Storage

pc: Any = compute

_SAMPLED: Final = 8
"""Tasks whose rows are looked at, and tables of rows of each of them."""


@dataclass(frozen=True)
class Known:
    """The findings; None for what the state does not tell.

    Attributes:
        keys: rows of all stores of all tasks.
        key_bytes: of a key, on average.
        value_bytes: of a value, on average.
        batch: rows that a commit of a task changes, at the median.
        notes: how each of these is known.
    """

    keys: int
    key_bytes: int | None
    value_bytes: int | None
    batch: int | None
    notes: tuple[str, ...]


def known_of(checkpoint: str, state_dir: str | None, workers: int = 4) -> Known:
    """Return what the state tells after the last micro-batch that was committed.

    Args:
        checkpoint: the query's ``checkpointLocation``.
        state_dir: the job's; None leaves the sizes of rows unknown.
        workers: how many files are read at the same time.

    Raises:
        ConfigurationError: there is no checkpoint, or no state in it.
        DurabilityError: something cannot be read.
    """
    found = SparkCheckpoint.at(checkpoint, workers)
    number = found.chosen(None)
    manifests = [one for one in found.manifests(number) if one.files]
    keys = sum(file.own_rows for one in manifests for file in one.files)
    if not keys:
        raise ConfigurationError(
            f"the query at {checkpoint} has no rows in its state after micro-batch {number}; describe it by --keys "
            "and other options instead"
        )
    notes = [
        f"keys: {keys:,} rows are in the durable files of {len(manifests)} tasks after micro-batch {number}; a row "
        "that was changed after the last snapshot is counted again, so there may be fewer",
    ]
    batches = [one.deltas[-1].own_rows for one in manifests if one.deltas]
    batch = round(median(batches)) if batches else None
    if batch is not None:
        notes.append(f"batch: the newest commits of its tasks changed {batch:,} rows, at the median")
    sizes = None if state_dir is None else _sizes(Storage.from_uri(state_dir), manifests)
    if sizes is not None:
        notes.append(f"key and value sizes: the average of {sizes[2]:,} of its rows, in the form that backends keep")
    key_bytes, value_bytes = (None, None) if sizes is None else sizes[:2]
    return Known(keys, key_bytes, value_bytes, None if batch is None else max(1, batch), tuple(notes))


def _sizes(storage: Storage, manifests: Sequence[Manifest]) -> tuple[int, int, int] | None:
    """Return the average bytes of a key and of a value, and the number of rows; None if there are only deletes."""
    keys = values = rows = 0
    for manifest in manifests[:: max(1, len(manifests) // _SAMPLED)]:
        tables = read_all_tables(storage, manifest, manifest.files[0])
        for _, table in islice(tables, _SAMPLED):
            kept = table.filter(pc.is_valid(table["value"]))
            stamped = pc.sum(pc.cast(pc.is_valid(kept["timestamp"]), pa.int64())).as_py() or 0
            keys += pc.sum(pc.binary_length(kept["key"])).as_py() or 0
            values += (pc.sum(pc.binary_length(kept["value"])).as_py() or 0) + 8 * stamped
            rows += kept.num_rows
    return (max(1, round(keys / rows)), round(values / rows), rows) if rows else None
