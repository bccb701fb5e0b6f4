"""The work that something is, as a count that is the same each time: steps of Python, and rows of the engine."""

import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from millpond.stores.backend.contract import Backend, Changes, Entries
from millpond.stores.backend.memory import MemoryBackend

_TOOL = 4
"""A number under which no profiler listens."""


class CountingBackend(Backend):
    """Counts the rows that are read and written.

    Attributes:
        rows: how many there were.
    """

    def __init__(self) -> None:
        self._backend = MemoryBackend()
        self.rows = 0

    def get(self, key: bytes) -> bytes | None:
        self.rows += 1
        return self._backend.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.rows += len(keys)
        return self._backend.get_many(keys)

    def last(self, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        self.rows += 1
        return self._backend.last(start, stop)

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        return self._counted(self._backend.scan(start, stop, reverse=reverse))

    def _counted(self, entries: Entries) -> Iterator[tuple[bytes, bytes]]:
        self.rows += 1
        for entry in entries:
            self.rows += 1
            yield entry

    def write(self, changes: Changes) -> None:
        self.rows += len(changes)
        self._backend.write(changes)

    def flush(self) -> None:
        self._backend.flush()

    def close(self) -> None:
        self._backend.close()


def steps_of(work: Callable[[], object]) -> int:
    """Return how many instructions the interpreter has for ``work``; what one of C's functions does is one."""
    count = 0

    def step(*_: object) -> None:
        nonlocal count
        count += 1

    if sys.version_info >= (3, 12):  # where ``settrace`` does not tell the instructions of a function's first call
        monitoring, instruction = sys.monitoring, sys.monitoring.events.INSTRUCTION
        monitoring.use_tool_id(_TOOL, __name__)
        monitoring.register_callback(_TOOL, instruction, step)
        monitoring.set_events(_TOOL, instruction)
        try:
            work()
        finally:
            monitoring.set_events(_TOOL, 0)
            monitoring.free_tool_id(_TOOL)
        return count

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            step()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
