"""The frames that a typical call of Millpond, zarr and Polars passes: ``python -m millpond.bench.hops``.

Rule of this module: it counts Python frames whose code is the package's own; C and Rust have none. zarr and Polars are
measured if they are installed. The engine is Millpond's or zarr's store in memory, and Polars' Rust; the frames to it
make a stack, which begins anew in zarr's thread and in each of its tasks.
"""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from types import FrameType
from typing import Any

import pyarrow as pa

from millpond import __version__
from millpond.processors.pond import Pond

ROWS = 1_000
"""Rows of each side of a join; those of a later call are of later times."""


class Passage:
    """Counts what calls pass while ``counting``, in this thread and those that start after it was made."""

    def __init__(self, package: str, engine: str) -> None:
        self._top, self._engine, self.counting = f"/{package}/", engine, False
        self.calls: Counter[tuple[str, str]] = Counter()
        self.hops = 0
        threading.setprofile(self)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Take an event of ``sys.setprofile``."""
        if not self.counting or event not in ("call", "c_call"):
            return
        code = frame.f_code
        if event == "call" and (own := self._own(code.co_filename)):
            self.calls[own, code.co_qualname] += 1
        reached = code.co_filename if event == "call" else type(getattr(argument, "__self__", None)).__name__
        if reached.endswith(self._engine):
            self.hops = max(self.hops, len({*self._stack(frame)}))

    def _own(self, file: str) -> str:
        """Return the path of the package's file, or nothing of another's, or of this one."""
        return file.rpartition(self._top)[2] if self._top in file and file != __file__ else ""

    def _stack(self, frame: FrameType | None) -> Iterator[str]:
        """Yield the package's files from an engine's call up to the user's."""
        while frame is not None:
            if own := self._own(frame.f_code.co_filename):
                yield own
            frame = frame.f_back

    def of(self, call: Callable[[int], object]) -> str:
        """Return the figures of a call that has been made twice before."""
        call(0)
        call(1)
        sys.setprofile(self)
        self.counting = True
        call(2)
        self.counting = False
        sys.setprofile(None)
        files = len({file for file, _ in self.calls})
        counts = f"{files:4} files {len(self.calls):4} functions {self.calls.total():5} calls"
        return f"{counts}, {self.hops:2} files on the way to the engine"


def table(value: str, start: int = 0) -> pa.Table:
    """Return rows of ten keys, a microsecond after one another."""
    keys = pa.array([str(row % 10) for row in range(ROWS)])
    times = pa.array(range(start * ROWS, (start + 1) * ROWS), pa.timestamp("us"))
    return pa.table({"k": keys, "t": times, value: pa.array(range(ROWS))})


def main() -> None:
    """Print the figures."""
    verbs, schemas = Pond().in_batches, (table("size").schema, table("bid").schema)
    given: dict[str, Any] = {"on": "k", "time": "t", "history": "1 day"}
    made = Passage("millpond", "backend/memory.py").of(lambda _: verbs.asof_join(*schemas, **given))
    print(f"millpond {__version__} in_batches.asof_join(..): {made}")
    with verbs.asof_join(*schemas, **given) as join:
        passage = Passage("millpond", "backend/memory.py")
        fed = passage.of(lambda start: join.feed(left=table("size", start), right=table("bid", start)))
    print(f"millpond {__version__} join.feed(..): {fed}")
    if find_spec("polars"):
        polars: Any = import_module("polars")
        left, right = polars.from_arrow(table("size")), polars.from_arrow(table("bid"))
        joined = Passage("polars", "PyLazyFrame").of(lambda _: left.join_asof(right, on="t", by="k"))
        print(f"polars {polars.__version__} df.join_asof(..): {joined}")
    if find_spec("zarr"):
        passage = Passage("zarr", "storage/_memory.py")
        zarr: Any = import_module("zarr")
        array = zarr.create_array(zarr.storage.MemoryStore(), shape=(100,), chunks=(10,), dtype="i4")
        array[:] = 1
        print(f"zarr {zarr.__version__} arr[0:10]: {passage.of(lambda _: array[0:10])}")


if __name__ == "__main__":
    main()
