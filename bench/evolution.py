"""What it costs to carry state over to other partitions, beside reading and writing the same rows as they are.

Processor time, of one process that does one unit after the other. No engine takes part: durable files are read and
written, a snapshot and a delta for each old task, the delta with a tenth of the keys.
"""

import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from millpond.bench.stores import VALUE_SIZE, key_of
from millpond.stores.columns.partitions import partitions_of
from millpond.stores.durability.manifest import FileKind, Manifest, new_commit_id
from millpond.stores.durability.parquet.files import write_file
from millpond.stores.durability.parquet.reading import read_all_tables
from millpond.stores.durability.parquet.rows import SCHEMA, tables_of_columns
from millpond.stores.durability.storage import Storage
from millpond.stores.evolution.carrying import Origin, carry_unit, units
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.formats import FormatVersion
from millpond.stores.keys import DATA
from millpond.stores.specs import StoreKind

Tasks = Mapping[tuple[int, int], Manifest]

STORE = StoreShape(0, "bench", StoreKind.KEY_VALUE, "string", "bytes", None, "string")
_CHANGED = 10
"""The delta of a task has one of so many of its keys."""


class Durable:
    """The durable files of one store with ``keys`` keys in some partitions."""

    def __init__(self, directory: Path, keys: int, partitions: int) -> None:
        self.storage = Storage.from_uri(f"file://{directory}?sync=false")
        self.partitions = partitions
        self.tasks: Tasks = {}
        self._keys = keys
        names = sorted(key_of(number).encode() for number in range(keys))
        targets = partitions_of(pa.array(names, pa.binary()), partitions)
        for partition in range(partitions):
            rows = pa.array([DATA + names[i] for i in (targets == partition).nonzero()[0]], pa.binary())
            task = Manifest.empty("bench", f"0_{partition}", "bench")
            task = task.with_snapshot(self._write(task, FileKind.SNAPSHOT, 1, rows), ())
            changed = self._write(task, FileKind.DELTA, 2, rows.take(pa.array(range(0, len(rows), _CHANGED))))
            self.tasks = {**self.tasks, (0, partition): task.with_delta(changed)}

    def _write(self, task: Manifest, kind: FileKind, sequence: int, rows: Any) -> Any:
        content = pa.py_buffer(random.Random(sequence).randbytes(VALUE_SIZE * len(rows)))
        values = pa.Array.from_buffers(pa.binary(VALUE_SIZE), len(rows), [None, content]).cast(pa.binary())
        tables = tables_of_columns(STORE.name, FormatVersion.PLAIN, rows, values)
        return write_file(self.storage, task.directory, kind, sequence, new_commit_id(), tables)

    def carry(self, partitions: int) -> None:
        """Go on in so many partitions."""
        before, after = Shape(self.partitions, (STORE,)), Shape(partitions, (STORE,))
        carried: dict[tuple[int, int], Manifest] = {}
        for unit in range(units(self.partitions, partitions)):
            carried |= carry_unit(
                self.storage,
                unit,
                before,
                after,
                {STORE.name: Origin(0, STORE.name)},
                self.tasks,
                application_id="bench",
                fingerprint="bench",
            )
        self.tasks, self.partitions = carried, partitions
        rows = sum(file.rows for task in carried.values() for file in task.files)
        assert rows == self._keys, f"{rows} rows of {self._keys} have arrived"

    def copy(self) -> None:
        """Read all rows, and write them as they are."""
        for task in self.tasks.values():
            for file in task.files:
                names_and_tables = read_all_tables(self.storage, task, file)
                tables = (
                    table.add_column(0, "store", pa.repeat(pa.scalar(name), len(table))).cast(SCHEMA)
                    for name, table in names_and_tables
                )
                write_file(self.storage, f"copy/{task.task_id}", file.kind, file.sequence, new_commit_id(), tables)


def run(
    keys: int, way: Sequence[int] = (4, 16, 4), *, rounds: int = 3, directory: Path | None = None
) -> dict[str, Any]:
    """The processor seconds of each step of the way, and of copying what it starts from: the best of the rounds."""
    steps: dict[str, list[float]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=directory) as temporary:
            durable = Durable(Path(temporary), keys, way[0])
            for before, after in pairwise(way):
                steps.setdefault(f"copy of {before}", []).append(_seconds(durable.copy))
                steps.setdefault(f"{before} -> {after}", []).append(_seconds(partial(durable.carry, after)))
    results = [
        {"step": step, "processor_s": min(times), "keys_per_s": keys / min(times)} for step, times in steps.items()
    ]
    return {"keys": keys, "value_bytes": VALUE_SIZE, "rounds": rounds, "steps": results}


def _seconds(work: Callable[[], object]) -> float:
    start = process_time()
    work()
    return process_time() - start


def print_results(console: Console, figures: Mapping[str, Any]) -> None:
    """Show what ``run`` has measured."""
    table = Table(title=f"{figures['keys']:,} keys to other partitions", title_justify="left")
    for name in ("partitions", "processor s", "keys/s"):
        table.add_column(name, justify="left" if name == "partitions" else "right")
    for row in figures["steps"]:
        table.add_row(row["step"], f"{row['processor_s']:.2f}", f"{row['keys_per_s']:,.0f}")
    console.print(table)
