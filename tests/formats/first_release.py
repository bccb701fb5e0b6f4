"""Release 0.1.0 as far as it read and wrote state: which manifests, files and directories it took, what stores showed.

Written down from the bytes that it knew, and frozen with it: nothing here follows what later releases write. It shares
no code with the project.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4
from zlib import crc32

import pyarrow as pa
from pyarrow import parquet as pq

METADATA: Final = frozenset({b"observed_stream_time", b"segment_interval", b"sequence"})
"""The metadata rows of its kinds of stores, without their first byte."""

_DATA: Final = b"\x01"
_FOOTER_END: Final = 8
_COLUMNS: Final[Any] = [
    ("store", pa.string()),
    ("key", pa.binary()),
    ("timestamp", pa.int64()),
    ("value", pa.binary()),
]


class RefusedError(Exception):
    """It stops, with nothing touched."""


class Row(NamedTuple):
    """The entry of a key in a durable file: its timestamp, if the store's format has one, and its value."""

    timestamp: int | None
    value: bytes | None


def read_manifest(text: str) -> dict[str, Any]:
    """Return the manifest that Spark's state holds."""
    content: dict[str, Any] = json.loads(text)
    if content["millpond"] != 1:
        raise RefusedError(f"a manifest has version {content['millpond']}, and only version 1 is known")
    return content


def read_rows(state_dir: Path, manifest: str, store: str) -> dict[bytes, Row]:
    """Return all rows of a store, metadata included: the snapshot, and each delta over it."""
    content, rows = read_manifest(manifest), dict[bytes, Row]()
    snapshot = [] if content["snapshot"] is None else [("snapshot", content["snapshot"])]
    for kind, file in [*snapshot, *(("delta", delta) for delta in content["deltas"])]:
        rows.update(_read_file(_path(state_dir, content, kind, file), file, store))
    return {key: row for key, row in rows.items() if row.value is not None}


def _path(state_dir: Path, content: Mapping[str, Any], kind: str, file: list[Any]) -> Path:
    directory = f"{content['application']}/{content['task']}/{content['lineage']}"
    return state_dir / directory / f"{file[0]:012d}-{file[1]}.{kind}.parquet"


def _read_file(path: Path, described: list[Any], store: str) -> Iterator[tuple[bytes, Row]]:
    _, commit, rows, size, checksum = described
    data = path.read_bytes()
    footer = len(data) - _FOOTER_END - int.from_bytes(data[-_FOOTER_END:-4], "little")
    if (len(data), crc32(data[footer:])) != (size, checksum):
        raise RefusedError(f"{path} is damaged")
    parquet: Any = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    said: Mapping[bytes, bytes] = parquet.metadata.metadata or {}
    if said.get(b"millpond.format") != b"1":
        raise RefusedError(f"{path} has format {said.get(b'millpond.format')!r}, and only format 1 is known")
    if (said.get(b"millpond.commit"), parquet.metadata.num_rows) != (commit.encode(), rows):
        raise RefusedError(f"{path} is the file of another commit")
    last = b""
    for group in range(parquet.num_row_groups):
        if parquet.metadata.row_group(group).column(0).statistics.min == store:
            try:
                table = parquet.read_row_group(group, columns=["key", "timestamp", "value"])
            except OSError as error:
                raise RefusedError(f"{path} is damaged: {error}") from error
            for key, timestamp, value in zip(*(column.to_pylist() for column in table.columns), strict=True):
                assert last < key, "it merges sorted runs, and would lose rows of others"
                last = key
                yield key, Row(timestamp, value)


def write_snapshot(state_dir: Path, manifest: str, store: str, rows: Mapping[bytes, Row]) -> str:
    """Write what is due at a snapshot of a task with one store; return the manifest of that version."""
    content = read_manifest(manifest)
    files = [content["snapshot"], *content["deltas"]]
    described = [files[-1][0] + 1, uuid4().hex, len(rows), 0, 0]
    path = _path(state_dir, content, "snapshot", described)
    schema = pa.schema(_COLUMNS, metadata={"millpond.format": "1", "millpond.commit": described[1]})
    lines = [{"store": store, "key": key, **rows[key]._asdict()} for key in sorted(rows)]
    write: Any = pq.write_table
    write(pa.Table.from_pylist(lines, schema), path, compression="zstd", write_page_checksum=True)
    data = path.read_bytes()
    footer = len(data) - _FOOTER_END - int.from_bytes(data[-_FOOTER_END:-4], "little")
    described[3:] = [len(data), crc32(data[footer:])]
    return json.dumps(content | {"snapshot": described, "deltas": []}, separators=(",", ":"))


@dataclass(frozen=True)
class Shown:
    """The content of a store of text once it is restored from rows.

    Attributes:
        rows: those of the durable files.
        retention: how long a versioned, window or session store keeps what it has, in milliseconds.
    """

    rows: Mapping[bytes, Row]
    retention: int

    @property
    def _horizon(self) -> float:
        """Times up to this one have expired."""
        observed = self.rows.get(b"\x00observed_stream_time")
        return float("-inf") if observed is None else _time(observed.value) - self.retention

    def _data(self, rest: int) -> Iterator[tuple[bytes, bytes, Row]]:
        """Yield each data row, in order: its key up to ``rest`` bytes from the end, those bytes, and what it holds."""
        for row in sorted(self.rows):
            if row.startswith(_DATA):
                yield row[1 : len(row) - rest], row[len(row) - rest :], self.rows[row]

    def key_value(self, *, stamped: bool) -> list[Any]:
        return [(key.decode(), _value(row, stamped)) for key, _, row in self._data(0)]

    def versions(self) -> list[Any]:
        """Return each version that is no tombstone: its value, and from when to when it is valid."""
        found = [(_key(key), _time(end), row.value or b"") for key, end, row in self._data(8)]
        nexts = [*found[1:], (None, 0, b"")][: len(found)]
        ends = [after[1] if after[0] == one[0] else None for one, after in zip(found, nexts, strict=True)]
        return [
            (key, (value[1:].decode(), start, end))
            for (key, start, value), end in zip(found, ends, strict=True)
            if value[:1] == b"\x01" and (end is None or end > self._horizon)
        ]

    def windows(self, size: int, *, stamped: bool, duplicates: bool) -> list[Any]:
        return [
            ((_key(key[8:]), _time(end), _time(end) + size), _value(row, stamped))
            for key, end, row in self._data(16 if duplicates else 8)
            if _time(end) > self._horizon
        ]

    def sessions(self, *, stamped: bool) -> list[Any]:
        return [
            ((_key(key[8:]), _time(times[8:]), _time(times)), _value(row, stamped))
            for key, times, row in self._data(16)
            if _time(times) > self._horizon
        ]


def _time(data: bytes | None) -> int:
    return int.from_bytes((data or b"")[:8], "big") - 2**63


def _key(terminated: bytes) -> str:
    assert terminated.endswith(b"\x00\x00")
    return terminated[:-2].replace(b"\x00\xff", b"\x00").decode()


def _value(row: Row, stamped: bool) -> Any:
    value = (row.value or b"").decode()
    return (value, -1 if row.timestamp is None else row.timestamp) if stamped else value


def check_directories(task_directory: Path, store: str) -> None:
    """Refuse the copies that lie there if one is in a format that it does not know; hidden ones it passes over."""
    for path in task_directory.iterdir():
        if re.fullmatch(re.escape(store) + r"-v\d+", path.name) and path.name != f"{store}-v2":
            raise RefusedError(f"{path} is in a format that is not known")


def trusts(position: bytes | None, boot: str) -> bool:
    """Return whether it goes on with a copy whose row of the position is that, instead of restoring it."""
    _, _, of_boot = (position or b"").partition(b" ")
    return of_boot.decode() == boot
