"""The work on a whole store at once: it is restored from durable files, or brought to another format.

Rule of this module: an operation is a row, and the clock runs once, around all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.bench.engines.engine import RawEngine
from millpond.bench.rows import VALUE_SIZE, key_of
from millpond.bench.runs.recording import Values
from millpond.bench.stores.key_values import filled, put_many_work
from millpond.bench.stores.pattern import Opened, require, sampled
from millpond.bench.stores.place import APPLICATION, TASK, Place
from millpond.bench.stores.sizes import Sizes
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.state import TaskState
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.serdes import BYTES, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

COMMITS: Final = 5
"""Deltas behind the snapshot that is restored; together they change a tenth of the rows."""

UNKNOWN_TIME: Final = -1
"""The timestamp of a row that had none before it was upgraded."""

_PLAIN: Final = StoreSpec("bench", StoreKind.KEY_VALUE, STRING, BYTES, checksums=False)
_TIMESTAMPED: Final = replace(_PLAIN, kind=StoreKind.TIMESTAMPED_KEY_VALUE)

Timed: TypeAlias = Callable[[Callable[[], object]], None]
"""Runs what it is given, with the clock around it."""


class WholeStore(ABC):
    """One change of a whole store of ``keys`` rows."""

    name: ClassVar[str]
    operation: ClassVar[str]
    engine_does: ClassVar[str | None] = None
    """The engine's work; None if it has nothing like it."""

    needs_disk: ClassVar[bool] = False
    """Whether the pattern needs a backend that keeps its store on disk."""

    @abstractmethod
    def on_store(self, place: Place, sizes: Sizes, timed: Timed) -> None:
        """Do it, and see that it is right.

        Raises:
            LookupError: the store does not hold what it must.
        """


class Restore(WholeStore):
    """A task begins where no local copy of its store is."""

    name = "restore"
    operation = f"a row of a store that is restored from a snapshot and {COMMITS} deltas"
    engine_does = "a row read from a Parquet file and loaded, sorted, the fastest way"

    def on_store(self, place: Place, sizes: Sizes, timed: Timed) -> None:
        share = sizes.keys // 10 // COMMITS
        manifest: Manifest | None = None
        with self._state(place, place.origin) as state:
            values = Values(VALUE_SIZE, sizes.seed)
            for first, count in [(0, sizes.keys), *((number * share, share) for number in range(COMMITS))]:
                store: Any = state.open(manifest)["bench"]
                keys = list(map(key_of, range(first, first + count)))
                store.put_many(keys, [values.next() for _ in keys], [first] * count)
                manifest = state.commit()
        with self._state(place, place.local) as state:
            timed(lambda: state.open(manifest))
            restored: Any = state.open(manifest)["bench"]
            require(sum(1 for _ in restored.scan()), sizes.keys, "the number of restored rows")
            for number in sampled(range(sizes.keys)):
                time = number // share * share if number < share * COMMITS else 0
                require(restored.get(key_of(number)).timestamp, time, f"the timestamp of {key_of(number)}")

    def _state(self, place: Place, local: Path) -> TaskState:
        return TaskState(
            [place.spec(_TIMESTAMPED)],
            place.supplier,
            application_id=APPLICATION,
            task_id=TASK,
            local_dir=local,
            storage=Storage.from_uri(str(place.durable)),
        )

    def on_engine(self, engine: RawEngine, sizes: Sizes, directory: Path, timed: Timed) -> None:
        """Read the rows from a plain Parquet file, and load them into the engine."""
        path, values = directory / "plain.parquet", Values(VALUE_SIZE, sizes.seed)
        rows = values.rows([key_of(number).encode() for number in range(sizes.keys)])
        keys, data = (list(column) for column in zip(*rows, strict=True))
        pq.write_table(pa.table({"key": keys, "value": data}), path, use_dictionary=False)
        del rows, keys, data
        timed(lambda: engine.load(_read(path)))


class Upgrade(WholeStore):
    """A job that kept no timestamps goes on with a kind that does, on a local copy that is there."""

    name = "upgrade"
    operation = "a row of a local store without timestamps that is opened as one with timestamps"
    needs_disk = True

    def on_store(self, place: Place, sizes: Sizes, timed: Timed) -> None:
        with place.opened(_PLAIN) as opened:
            ready, put = put_many_work(opened.store, Values(VALUE_SIZE, sizes.seed), timed=False)
            for (_, argument), _ in filled(list(map(key_of, range(sizes.keys)))):
                put(ready(argument))
                opened.commit()
        with ExitStack() as stack:
            found: list[Opened] = []
            timed(lambda: found.append(stack.enter_context(place.opened(_TIMESTAMPED))))
            store = found[0].store
            require(sum(1 for _ in store.scan()), sizes.keys, "the number of upgraded rows")
            for key in sampled(map(key_of, range(sizes.keys))):
                require(store.get(key).timestamp, UNKNOWN_TIME, f"the timestamp of {key}")


def _read(path: Path) -> list[tuple[bytes, bytes]]:
    table: Any = pq.read_table(path)
    return list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
