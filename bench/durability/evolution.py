"""The cost of carrying state over to other partitions, beside reading and writing the same rows as they are.

One process does one unit after the other. No engine takes part: durable files are read and written, a snapshot and a
delta for each old task, the delta with a tenth of the keys. What is not needed any more is deleted, so the disk holds
the state twice, and the memory of this process does not grow with the number of keys.
"""

import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from millpond.bench.measure import Cost, cost
from millpond.bench.rows import VALUE_SIZE, key_of
from millpond.errors import ConfigurationError
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.files import write_file, writing_file
from millpond.stores.durability.parquet.reading import read_all_tables
from millpond.stores.durability.parquet.rows import SCHEMA, tables_of_columns
from millpond.stores.durability.storage.durable_file import FileKind, new_commit_id
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.keys import DATA
from millpond.stores.encoding.partitions import partitions_of
from millpond.stores.evolution.carrying import Origin, carry_unit, units
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.evolution.snapshots import Snapshots
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.store_spec import StoreKind

Tasks = Mapping[tuple[int, int], Manifest]

STORE = StoreShape(0, "bench", StoreKind.KEY_VALUE, "string", "bytes", None, "string")
_CHANGED = 10
"""The deltas have one of so many keys."""

_TOGETHER = 100_000
"""The number of keys that are made at once."""


class Durable:
    """The durable files of one store with ``keys`` keys in some partitions."""

    def __init__(self, directory: Path, keys: int, partitions: int) -> None:
        self.storage = Storage.from_uri(f"file://{directory}?sync=false")
        self.partitions = partitions
        self._directory = directory
        self._keys = keys
        tasks = {number: Manifest.empty("bench", f"0_{number}", "bench") for number in range(partitions)}
        changed = self._with_deltas(self._with_snapshots(tasks))
        self.tasks: Tasks = {(0, number): task for number, task in changed.items()}

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(file.size for task in self.tasks.values() for file in task.files)

    def _with_snapshots(self, tasks: Mapping[int, Manifest]) -> dict[int, Manifest]:
        with Snapshots(self.storage, tasks) as snapshots:
            snapshots.begin_store(STORE.name, FormatVersion.PLAIN)
            for number, rows, values in self._rows(1):
                snapshots.add([number], rows, values)
            snapshots.end_store()
        return snapshots.manifests()

    def _with_deltas(self, tasks: Mapping[int, Manifest]) -> dict[int, Manifest]:
        with ExitStack() as stack:
            deltas = {
                number: stack.enter_context(
                    writing_file(self.storage, task.directory, FileKind.DELTA, task.sequence + 1, new_commit_id())
                )
                for number, task in tasks.items()
            }
            for number, rows, values in self._rows(_CHANGED):
                for table in tables_of_columns(STORE.name, FormatVersion.PLAIN, rows, values):
                    deltas[number].add(table)
        return {number: task.with_delta(deltas[number].written()) for number, task in tasks.items()}

    def _rows(self, every: int) -> Iterator[tuple[int, Any, Any]]:
        """Yield the rows of one key of so many, with their partition, some at a time."""
        contents = random.Random(every)
        for first in range(0, self._keys, _TOGETHER):
            numbers = range(first, min(first + _TOGETHER, self._keys), every)
            names = pa.array([key_of(number).encode() for number in numbers], pa.binary())
            rows = pa.array([DATA + name.as_py() for name in names], pa.binary())
            targets = partitions_of(names, self.partitions)
            for partition in range(self.partitions):
                mine = rows.filter(pa.array(targets == partition))
                content = pa.py_buffer(contents.randbytes(VALUE_SIZE * len(mine)))
                values = pa.Array.from_buffers(pa.binary(VALUE_SIZE), len(mine), [None, content])
                yield partition, mine, values.cast(pa.binary())

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

    def tidy_up(self) -> None:
        """Delete all files that no task has."""
        wanted = {self._directory / task.directory for task in self.tasks.values()}
        for directory in {*self._directory.glob("bench/*/*"), self._directory / "copy"} - wanted:
            shutil.rmtree(directory, ignore_errors=True)


class Step(NamedTuple):
    """One step of the way, measured once: its cost, and the bytes of the files that it wrote."""

    name: str
    cost: Cost
    bytes: int


def parse_way(text: str) -> list[int]:
    """Return the numbers of partitions of a way, as the command line has them.

    >>> parse_way("4,16,4")
    [4, 16, 4]

    Raises:
        ConfigurationError: they are no numbers, or fewer than two.
    """
    numbers = text.split(",")
    if len(numbers) < 2 or not all(number.isdecimal() and len(number) < 10 and int(number) for number in numbers):
        raise ConfigurationError(f"partitions are {text!r}, but must be numbers of them, two at least, such as 4,16,4")
    return list(map(int, numbers))


def run(
    keys: int, way: Sequence[int] = (4, 16, 4), *, rounds: int = 3, directory: Path | None = None
) -> dict[str, Any]:
    """Return the cost of each step of the way, and of copying its starting point.

    Medians of the rounds, and the most memory.

    Args:
        keys: of the store.
        way: the numbers of partitions, one after the other.
        rounds: how often the whole way is repeated.
        directory: where the files go; by default the temporary directory.
    """
    found: dict[str, list[Step]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=directory) as temporary:
            for step in _steps(Durable(Path(temporary), keys, way[0]), way):
                found.setdefault(step.name, []).append(step)
    results = [_figures(keys, steps) for steps in found.values()]
    return {"keys": keys, "value_bytes": VALUE_SIZE, "rounds": rounds, "steps": results}


def _steps(durable: Durable, way: Sequence[int]) -> Iterator[Step]:
    for before, after in pairwise(way):
        yield Step(f"copy of {before}", cost(durable.copy), durable.bytes)
        durable.tidy_up()
        carried = cost(partial(durable.carry, after))
        yield Step(f"{before} -> {after}", carried, durable.bytes)
        durable.tidy_up()


def _figures(keys: int, steps: Sequence[Step]) -> dict[str, Any]:
    processor = median(step.cost.processor_s for step in steps)
    return {
        "step": steps[0].name,
        "wall_s": median(step.cost.wall_s for step in steps),
        "processor_s": processor,
        "keys_per_s": keys / processor,
        "peak_bytes": max(step.cost.peak_bytes for step in steps),
        "written_bytes": steps[-1].bytes,
    }


def print_results(console: Console, figures: Mapping[str, Any]) -> None:
    """Show what ``run`` has measured."""
    table = Table(title=f"{figures['keys']:,} keys to other partitions", title_justify="left")
    for name in ("partitions", "s", "processor s", "keys/s", "memory MiB", "written MiB"):
        table.add_column(name, justify="left" if name == "partitions" else "right")
    for row in figures["steps"]:
        seconds = (f"{row[name]:.2f}" for name in ("wall_s", "processor_s"))
        sizes = (f"{row[name] / 2**20:,.0f}" for name in ("peak_bytes", "written_bytes"))
        table.add_row(row["step"], *seconds, f"{row['keys_per_s']:,.0f}", *sizes)
    console.print(table)
