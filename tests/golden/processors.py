"""The named processors of cases: they remember, look up, collect until a timer fires, tick, and call their stores.

Rule of this module: each does what the class of its name in ``tests/kafka/java/cases/Processors.java`` does.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from millpond.processors import PunctuationType, RecordProcessor
from tests.golden.functions import last24, text
from tests.golden.storeops import operations

CLOCKS = {"stream": PunctuationType.STREAM_TIME, "wall": PunctuationType.WALL_CLOCK_TIME}


def make(described: Mapping[str, Any], store_kind: str | None) -> RecordProcessor:
    """Return the processor that an operator describes; ``store_kind`` is the golden name of its own store's kind."""
    store = described.get("store", "")
    match described["kind"]:
        case "last_seen":
            return LastSeen(store)
        case "look_up":
            return LookUp(store)
        case "peek":
            return Peek(store)
        case "rekey":
            return Rekey()
        case "route":
            return Route(described["children"])
        case "fill":
            return Fill(store)
        case "collect":
            return Collect(store, described)
        case "tick":
            return Tick(described)
        case "call":
            assert store_kind is not None
            return Call(store, store_kind)
        case kind:
            raise ValueError(f"no processor {kind}")


class LastSeen(RecordProcessor):
    """Forwards what the key had before and what it has now."""

    def __init__(self, store: str) -> None:
        self._name = store

    def open(self) -> None:
        self._store = self.context.store(self._name)

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        if key is not None:
            before = self._store.get(key)
            self._store.put(key, value)
            self.forward(key, f"{text(before)}/{text(value)}", timestamp)


class LookUp(RecordProcessor):
    """Forwards each record together with the row that a table has for its key."""

    def __init__(self, store: str) -> None:
        self._name = store

    def open(self) -> None:
        self._store = self.context.store(self._name)

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        found = None if key is None else self._store.get(key)
        answer = "null" if found is None else f"{found.value}@{found.timestamp}"
        self.forward(key, f"{text(value)}/{answer}", timestamp)


class Peek(RecordProcessor):
    """Forwards each record together with what a plain store has for its key."""

    def __init__(self, store: str) -> None:
        self._name = store

    def open(self) -> None:
        self._store = self.context.store(self._name)

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        found = None if key is None else self._store.get(key)
        self.forward(key, f"{text(value)}/{text(found)}", timestamp)


class Rekey(RecordProcessor):
    """Gives each record the first character of its value for a key."""

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.forward(text(value)[0], value, timestamp)


class Route(RecordProcessor):
    """Forwards a record to one of its children, or to all, by the length of its value."""

    def __init__(self, children: Sequence[str]) -> None:
        self._children = children

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        place = len(text(value)) % (len(self._children) + 1)
        to = self._children[place] if place < len(self._children) else None
        self.forward(key, value, timestamp, to=to)


class Fill(RecordProcessor):
    """Fills a global store."""

    def __init__(self, store: str) -> None:
        self._name = store

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        if key is not None:
            self.context.store(self._name).put(key, None if value is None else f"={value}")


class Collect(RecordProcessor):
    """Holds the values of each key back until a timer fires."""

    def __init__(self, store: str, described: Mapping[str, Any]) -> None:
        self._name, self._described = store, described

    def open(self) -> None:
        self._store = self.context.store(self._name)
        self.schedule(self._described["interval_ms"], CLOCKS[self._described["clock"]], self.fire)

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        if key is not None:
            self._store.put(key, last24(f"{self._store.get(key) or ''}+{text(value)}"))

    def fire(self, now: int) -> None:
        for key, value in list(self._store.scan()):
            self._store.delete(key)
            self.forward(key, value, now)


class Tick(RecordProcessor):
    """Passes records on, and forwards one of its own whenever a timer fires, for so many times."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        self._described = described
        self._left = described.get("times")

    def open(self) -> None:
        clock = CLOCKS[self._described["clock"]]
        self._schedule = self.schedule(self._described["interval_ms"], clock, self.fire)

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.forward(key, value, timestamp)

    def fire(self, now: int) -> None:
        self.forward("tick", str(now), now)
        if self._left is not None:
            self._left -= 1
            if not self._left:
                self._schedule.cancel()


class Call(RecordProcessor):
    """Takes each value for a call of its store, and forwards the answer."""

    def __init__(self, store: str, kind: str) -> None:
        self._name, self._kind = store, kind

    def open(self) -> None:
        self._calls = operations(self._kind, self.context.store(self._name))

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        call = json.loads(value)
        answer = self._calls[call["op"]](*call["args"])
        self.forward(key, json.dumps(answer, separators=(",", ":")), timestamp)
