"""The topologies that ``millpond bench processors`` measures, each beside the same work on plain dicts.

Rule of this module: a peer gives what the topology gives, record for record, from dicts in this process: no bytes, no
store, nothing that would survive.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors import (
    Batch,
    Columns,
    Consumed,
    Grouped,
    JoinWindows,
    KStream,
    Materialized,
    Produced,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import serde

pc: Any = _compute

VERSIONS = 4
"""The number of versions of each key in a versioned table."""

FOREIGN_KEYS = 50
"""The number of keys of the table that rows of the other one refer to."""

HOUR = 3_600_000
SESSION_GAP = 6 * HOUR
HISTORY = 365 * 24 * HOUR
MSGPACK_OUT = Produced("string", "msgpack")

FIELDS: Final = "carrier:string,flight:long,distance:double,delayed:boolean,tail:string"
VALUES: Final = f"struct<{FIELDS}>"
"""The serde of the values where they are columns."""

Value = dict[str, Any]
Peer = Callable[[Iterable[Batch]], list[tuple[Any, Any, int]]]
"""The work on dicts, one batch after the other: returns key, value and time of each result."""


@dataclass(frozen=True)
class Case:
    """One topology.

    Attributes:
        name: what it is called.
        build: the topology; it reads ``in``, and ``table`` if there is one, and writes ``out``.
        peer: the same work on dicts; from the join of two streams it leaves out records without a partner.
        versions: how many versions of each key go into ``table`` first; 0 if there is no table.
        as_columns: whether records come as columns.
    """

    name: str
    build: Callable[[], Topology]
    peer: Callable[[Sequence[Batch]], Peer]
    versions: int = 0
    as_columns: bool = False

    def sent(self, batch: Batch) -> Batch | Columns:
        """Return records in the form in which the topology gets them."""
        if not self.as_columns:
            return batch
        values: Any = pa.array(batch.values, _column_type())
        return Columns(pa.array(batch.keys), values, np.array(batch.timestamps, np.int64))


def _column_type() -> pa.DataType:
    columns = column_serde(serde(VALUES))
    assert columns is not None
    return columns.type


def _join(left: Value, right: Value) -> Value:
    return {**left, "other": right["tail"]}


def _source(builder: StreamsBuilder) -> KStream:
    return builder.stream("in", Consumed("string", "msgpack"))


def _stream_table(materialized: Materialized) -> Callable[[], Topology]:
    def build() -> Topology:
        builder = StreamsBuilder()
        table = builder.table("table", Consumed("string", "msgpack"), materialized)
        _source(builder).join(table, _join).to("out", MSGPACK_OUT)
        return builder.build()

    return build


def _kept(name: str, *, versioned: bool) -> Materialized:
    return Materialized.versioned(name, history_retention=HISTORY) if versioned else Materialized(name)


def _table_table(*, versioned: bool) -> Callable[[], Topology]:
    def build() -> Topology:
        builder = StreamsBuilder()
        left = builder.table("in", materialized=_kept("left", versioned=versioned))
        right = builder.table("table", materialized=_kept("right", versioned=versioned))
        left.join(right, _join).to("out", MSGPACK_OUT)
        return builder.build()

    return build


def _table_table_columns(*, versioned: bool) -> Callable[[], Topology]:
    def build() -> Topology:
        builder = StreamsBuilder(key_serde="string", value_serde=VALUES)
        left = builder.table("in", materialized=_kept("left", versioned=versioned))
        right = builder.table("table", materialized=_kept("right", versioned=versioned))
        left.join(right, _join_columns, vectorized=True).to("out")
        return builder.build()

    return build


def _count() -> Topology:
    builder = StreamsBuilder()
    _source(builder).group_by_key().count().to("out")
    return builder.build()


def _grouped_table_count() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("in", Consumed("string", "msgpack"), Materialized("flights"))
    table.group_by(lambda k, v: (v["carrier"], v), Grouped("string", "msgpack")).count().to("out")
    return builder.build()


def _windowed_count() -> Topology:
    builder = StreamsBuilder()
    _source(builder).group_by_key().windowed_by(TimeWindows(HOUR)).count().to("out")
    return builder.build()


def _sessions() -> Topology:
    builder = StreamsBuilder()
    _source(builder).group_by_key().windowed_by(SessionWindows(SESSION_GAP)).count().to("out")
    return builder.build()


def _foreign_key() -> Topology:
    builder = StreamsBuilder()
    left = builder.table("in", materialized=Materialized("left"))
    right = builder.table("table", materialized=Materialized("right"))
    left.join(right, _join, foreign_key=_refers_to).to("out", MSGPACK_OUT)
    return builder.build()


def _refers_to(value: Value) -> str:
    return f"key-{value['flight'] % FOREIGN_KEYS:07d}"


def _foreign_key_columns() -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde=VALUES)
    left = builder.table("in", materialized=Materialized("left"))
    right = builder.table("table", materialized=Materialized("right"))
    joined = left.join(
        right,
        _join_columns,
        Materialized(value_serde=f"struct<{FIELDS},other:string>"),
        foreign_key=_refer_to,
        vectorized=True,
    )
    joined.to("out", Produced("string"))
    return builder.build()


def _refer_to(values: Any) -> Any:
    keys: Any = pa.array([f"key-{number:07d}" for number in range(FOREIGN_KEYS)])
    return keys.take(pa.array(pc.struct_field(values, "flight").to_numpy() % FOREIGN_KEYS))


def _join_columns(left: Any, right: Any) -> Any:
    names = [field.name for field in left.type]
    return pa.StructArray.from_arrays([*left.flatten(), pc.struct_field(right, "tail")], [*names, "other"])


def _stream_stream() -> Topology:
    builder = StreamsBuilder()
    stream = _source(builder)
    joined = stream.left_join(
        stream.filter(lambda k, v: bool(v["delayed"])), _join_or_none, windows=JoinWindows.of(HOUR)
    )
    joined.to("out", MSGPACK_OUT)
    return builder.build()


def _stream_stream_columns() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed("string", VALUES))
    delayed = stream.filter(lambda keys, values: pc.struct_field(values, "delayed"), vectorized=True)
    stream.left_join(delayed, _join_columns, windows=JoinWindows.of(HOUR), vectorized=True).to("out")
    return builder.build()


def _join_or_none(left: Value, right: Value | None) -> Value:
    return {**left, "other": None if right is None else right["tail"]}


def _rows(batches: Iterable[Batch]) -> Iterator[tuple[str, Value, int]]:
    for batch in batches:
        yield from zip(batch.keys, batch.values, batch.timestamps, strict=True)


def _dict_join(table: Sequence[Batch]) -> Peer:
    rows = {key: value for key, value, _ in _rows(table)}
    return lambda batches: [(k, _join(v, rows[k]), t) for k, v, t in _rows(batches)]


def _dict_join_as_of(table: Sequence[Batch]) -> Peer:
    times: dict[str, list[int]] = {}
    values: dict[str, list[Value]] = {}
    for key, value, time in _rows(table):
        times.setdefault(key, []).append(time)
        values.setdefault(key, []).append(value)
    return lambda batches: [(k, _join(v, values[k][bisect_right(times[k], t) - 1]), t) for k, v, t in _rows(batches)]


def _dict_count(table: Sequence[Batch]) -> Peer:
    def work(batches: Iterable[Batch]) -> list[tuple[str, int, int]]:
        counts: dict[str, int] = {}
        out = []
        for key, _, time in _rows(batches):
            counts[key] = counts.get(key, 0) + 1
            out.append((key, counts[key], time))
        return out

    return work


def _dict_grouped_table_count(table: Sequence[Batch]) -> Peer:
    """Count the rows of each group: one update for a row that stays in its group, two for one that moves (KIP-904)."""

    def work(batches: Iterable[Batch]) -> list[tuple[str, int, int]]:
        groups: dict[str, str] = {}
        counts: dict[str, int] = {}
        out = []
        for key, value, time in _rows(batches):
            group, before = value["carrier"], groups.get(key)
            groups[key] = group
            if before != group:
                counts[group] = counts.get(group, 0) + 1
                if before is not None:
                    counts[before] -= 1
                    out.append((before, counts[before], time))
            out.append((group, counts[group], time))
        return out

    return work


def _dict_windowed_count(table: Sequence[Batch]) -> Peer:
    def work(batches: Iterable[Batch]) -> list[tuple[tuple[str, int], int, int]]:
        counts: dict[tuple[str, int], int] = {}
        out = []
        for key, _, time in _rows(batches):
            window = key, time - time % HOUR
            counts[window] = counts.get(window, 0) + 1
            out.append((window, counts[window], time))
        return out

    return work


def _dict_sessions(table: Sequence[Batch]) -> Peer:
    def work(batches: Iterable[Batch]) -> list[tuple[str, int | None, int]]:
        newest: dict[str, tuple[int, int]] = {}
        out: list[tuple[str, int | None, int]] = []
        for key, _, time in _rows(batches):
            count, last = newest.get(key, (0, time))
            if time - last > SESSION_GAP:
                count = 0
            elif count:
                out.append((key, None, last))
            newest[key] = count + 1, time
            out.append((key, count + 1, time))
        return out

    return work


def _dict_foreign_key(table: Sequence[Batch]) -> Peer:
    """Join a key's last row in a batch with its partner: without one a delete comes out, unless the key is new."""
    partners = {key: value for key, value, _ in _rows(table)}

    def work(batches: Iterable[Batch]) -> list[tuple[str, Value | None, int]]:
        known: set[str] = set()
        out: list[tuple[str, Value | None, int]] = []
        for batch in batches:
            last: dict[str, tuple[str, Value | None, int]] = {}
            for key, value, time in _rows([batch]):
                partner = partners.get(_refers_to(value))
                last.pop(key, None)
                if partner is not None or key in known:
                    last[key] = key, None if partner is None else _join(value, partner), time
                known.add(key)
            out.extend(last.values())
        return out

    return work


def _dict_stream_stream(table: Sequence[Batch]) -> Peer:
    """Join two streams; a delayed record is in both, so it also meets itself."""

    def work(batches: Iterable[Batch]) -> list[tuple[str, Value, int]]:
        lefts: dict[str, deque[tuple[int, Value]]] = {}
        rights: dict[str, deque[tuple[int, Value]]] = {}
        out: list[tuple[str, Value, int]] = []
        for key, value, time in _rows(batches):
            out.extend((key, _join(value, other), time) for other in _recent(rights, key, time))
            lefts.setdefault(key, deque()).append((time, value))
            if value["delayed"]:
                out.extend((key, _join(other, value), time) for other in _recent(lefts, key, time))
                rights.setdefault(key, deque()).append((time, value))
        return out

    return work


def _recent(kept: dict[str, deque[tuple[int, Value]]], key: str, time: int) -> list[Value]:
    """Return the values of a key from the hour before that time; forget older ones."""
    values = kept.get(key)
    if values is None:
        return []
    while values and time - values[0][0] > HOUR:
        values.popleft()
    return [value for _, value in values]


_ALL: Final = (
    Case("stream-table join", _stream_table(Materialized("rates")), _dict_join, 1),
    Case(
        "stream-table join, versioned",
        _stream_table(_kept("rates", versioned=True)),
        _dict_join_as_of,
        VERSIONS,
    ),
    Case("table-table join", _table_table(versioned=False), _dict_join, 1),
    Case("table-table join, versioned", _table_table(versioned=True), _dict_join, 1),
    Case("table-table join, columns", _table_table_columns(versioned=False), _dict_join, 1, as_columns=True),
    Case("table-table join, versioned, columns", _table_table_columns(versioned=True), _dict_join, 1, as_columns=True),
    Case("count", _count, _dict_count),
    Case("count of a table by another key", _grouped_table_count, _dict_grouped_table_count),
    Case("windowed count", _windowed_count, _dict_windowed_count),
    Case("session count", _sessions, _dict_sessions),
    Case("foreign-key join", _foreign_key, _dict_foreign_key, 1),
    Case("foreign-key join, columns", _foreign_key_columns, _dict_foreign_key, 1, as_columns=True),
    Case("stream-stream left join", _stream_stream, _dict_stream_stream),
    Case("stream-stream left join, columns", _stream_stream_columns, _dict_stream_stream, as_columns=True),
)

CASES: Final[Mapping[str, Case]] = {case.name: case for case in _ALL}
"""The measured topologies, by name."""
