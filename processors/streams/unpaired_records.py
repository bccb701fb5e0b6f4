"""Records of a stream-stream join that wait for a partner, as the records of a batch see them, one after the other.

Rule of this module: records that close within the batch are all in memory, and of the rest only those that it has
changed: a record that comes and goes within a batch never reaches the store. The bytes are as in
``millpond.processors.streams.unpaired_rows``.
"""

from heapq import heappop, heappush
from typing import Any, NamedTuple

from millpond.processors.options.joins import Side
from millpond.processors.streams.unpaired_rows import (
    KEY_FROM,
    SIDE_AT,
    SIDES,
    UnpairedRows,
    data_of,
    head_of,
    number_of,
    row_of,
    values_of,
)
from millpond.stores.encoding.keys import TIME_SIZE
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import MIN_TIME
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.store import reading


class Waiting(NamedTuple):
    """A record for which no partner came."""

    timestamp: int
    side: Side
    key: Any
    value: Any


class WaitingRecords:
    """The records of both sides that have no partner yet, and the stream time of both.

    The user of the store calls ``begin`` before a batch and ``end`` after it.

    Args:
        store: a store of bytes, used for nothing else.
        key_serde: the serde of the records' keys.
        value_serdes: the serdes of the values of each side.

    Attributes:
        rows: the summary of the store's rows, outside of a batch.
        stream_time: the largest timestamp of either side, within a batch.
    """

    def __init__(
        self, store: KeyValueStore[bytes, bytes], key_serde: Serde[Any], value_serdes: dict[Side, Serde[Any]]
    ) -> None:
        self._store = store
        self._read_key = reading(store.name, "key", key_serde)
        self._read_value = [reading(store.name, "value", value_serdes[side]) for side in SIDES]
        self._closes: list[int] = []
        self._closing: dict[int, list[bytes]] = {}
        self._added: dict[bytes, list[bytes]] = {}
        self._removed: set[bytes] = set()
        self._taken: set[bytes] = set()
        self._changes = [0] * len(SIDES)
        self.stream_time = MIN_TIME
        self.rows = UnpairedRows(store)

    def begin(self, until: int) -> None:
        """Read the stream time, and what closes before ``until``, the batch's largest timestamp, from the store."""
        self.stream_time = self.rows.stream_time
        self._until = until
        self._added = {row: list(values_of(data)) for row, data in self.rows.closing(until)}
        self._removed = set()
        self._taken = set(self._added)
        self._closes, self._closing = [], {}
        for row in self._added:
            self._let_close(head_of(row)[0], row)

    def end(self) -> None:
        """Write the changes to the store: records, their counts, and the stream time."""
        self._write_records()
        changes, self._changes = self._changes, [0] * len(SIDES)
        self.rows.note(self.stream_time, changes)

    def advance(self, timestamp: int) -> list[Waiting]:
        """Advance stream time; remove and return the records whose time is over, the oldest first."""
        if timestamp <= self.stream_time:
            return []
        self.stream_time = timestamp
        closes, added = self._closes, self._added
        over: list[tuple[bytes, list[bytes]]] = []
        while closes and closes[0] < timestamp:
            for row in self._closing.pop(heappop(closes)):
                values = added.pop(row, None)
                if values is not None:
                    over.append((row, values))
                    self._changes[row[SIDE_AT]] -= len(values)
        return self._in_order(over) if over else []

    def drain(self) -> list[Waiting]:
        """Remove and return all records; stream time does not change."""
        return self._in_order([(row, list(values_of(data))) for row, data in self.rows.drain()])

    def add(self, close: int, timestamp: int, side: Side, key: bytes, value: bytes) -> None:
        """Let a record wait until stream time has passed ``close``, which it has not yet."""
        row = row_of(close, timestamp, side, key)
        values = self._added.get(row)
        if values is not None:
            values.append(value)
        else:
            self._added[row] = [value]
            if close < self._until:
                self._let_close(close, row)
        self._changes[number_of(side)] += 1

    def remove(self, close: int, timestamp: int, side: Side, key: bytes) -> None:
        """Forget the records of ``key`` with this time and side: they have found a partner."""
        if close >= self.stream_time:
            row = row_of(close, timestamp, side, key)
            self._changes[number_of(side)] -= len(self._added.pop(row, ()))
            if close >= self._until:
                self._removed.add(row)

    def _let_close(self, close: int, row: bytes) -> None:
        """Note that a row closes within the batch."""
        closing = self._closing.get(close)
        if closing is None:
            self._closing[close] = [row]
            heappush(self._closes, close)
        else:
            closing.append(row)

    def _write_records(self) -> None:
        """Lay what the batch has added and removed over what the store has."""
        added, removed = self._added, self._removed
        written: dict[bytes, bytes | None] = dict.fromkeys(self._taken)
        met = [row for row in (*added, *removed.difference(added)) if row not in self._taken]
        for row, data in zip(met, self._store.get_many(met), strict=True):
            if data is not None:
                gone = row in removed
                written[row] = None if gone else data
                self._changes[head_of(row)[2]] -= sum(1 for _ in values_of(data)) if gone else 0
        for row, values in added.items():
            written[row] = (written.get(row) or b"") + data_of(values)
        self._store.put_many(written, list(written.values()))

    def _in_order(self, rows: list[tuple[bytes, list[bytes]]]) -> list[Waiting]:
        """Return the records in the rows by time, then side, then key."""
        rows.sort(key=_behind_close)
        records = []
        for row, values in rows:
            _, time, number = head_of(row)
            key, side, decode = self._read_key(row[KEY_FROM:]), SIDES[number], self._read_value[number]
            records += [Waiting(time, side, key, decode(value)) for value in values]
        return records


def _behind_close(entry: tuple[bytes, list[bytes]]) -> bytes:
    return entry[0][TIME_SIZE:]
