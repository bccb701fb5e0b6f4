"""Tables of Delta Lake as its protocol describes them, written without it: what a test says is in the log."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_TYPES = {
    pa.string(): "string",
    pa.int64(): "long",
    pa.int32(): "integer",
    pa.int8(): "byte",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    pa.decimal128(7, 2): "decimal(7,2)",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}
_ADD = pa.struct([("path", pa.string()), ("partitionValues", pa.map_(pa.string(), pa.string())), ("size", pa.int64())])
_META = pa.struct(
    [
        ("id", pa.string()),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", pa.map_(pa.string(), pa.string())),
    ]
)
_PROTOCOL = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
_REMOVE = pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64())])


@dataclass
class WrittenDelta:
    """A table that a test writes.

    Attributes:
        path: its directory.
        schema: its columns.
        partitions: those whose values are in the log alone.
        protocol: what its readers have to know.
        configuration: its properties.
    """

    path: Path
    schema: pa.Schema
    partitions: Sequence[str] = ()
    protocol: Mapping[str, Any] = field(default_factory=lambda: {"minReaderVersion": 1, "minWriterVersion": 2})
    configuration: Mapping[str, str] = field(default_factory=dict)
    version: int = -1
    _files: dict[str, dict[str, str | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.path / "_delta_log").mkdir(parents=True)
        self._commit({"protocol": dict(self.protocol)}, {"metaData": self._meta})

    @property
    def _meta(self) -> dict[str, Any]:
        fields = [{"name": one.name, "type": _TYPES[one.type], "nullable": True, "metadata": {}} for one in self.schema]
        return {
            "id": "table",
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": list(self.partitions),
            "configuration": dict(self.configuration),
        }

    def add(self, *rows: pa.Table, remove: Sequence[str] = (), **values: str | None) -> list[str]:
        """Commit files of these rows, all of one partition, in place of others; returns how the log calls them."""
        names = []
        for table in rows:
            name = f"part {self.version + 1}-{len(self._files)}.parquet"
            pq.write_table(table, self.path / name)
            # The log has paths as those of URIs.
            names.append(name.replace(" ", "%20"))
            self._files[names[-1]] = values
        for name in remove:
            del self._files[name]
        added = [{"add": {"path": one, "partitionValues": values, "size": 1, "dataChange": True}} for one in names]
        self._commit(*added, *({"remove": {"path": one, "deletionTimestamp": 1}} for one in remove))
        return names

    def act(self, *actions: Mapping[str, Any]) -> None:
        """Commit other actions."""
        self._commit(*actions)

    def checkpoint(self, parts: int = 1, *, clean: bool = True) -> None:
        """Write a checkpoint of this version, of so many files; ``clean`` deletes the commits up to it."""
        files = [
            {"add": {"path": path, "partitionValues": list(values.items()), "size": 1}}
            for path, values in self._files.items()
        ]
        meta = {**self._meta, "configuration": list(self.configuration.items())}
        actions: list[dict[str, Any]] = [
            {"protocol": {name: self.protocol[name] for name in ("minReaderVersion", "minWriterVersion")}},
            {"metaData": meta},
            {"remove": {"path": "gone.parquet", "deletionTimestamp": 1}},
            *files,
        ]
        fields: Any = [("protocol", _PROTOCOL), ("metaData", _META), ("add", _ADD), ("remove", _REMOVE)]
        log = self.path / "_delta_log"
        for number in range(parts):
            ending = "parquet" if parts == 1 else f"{number + 1:010d}.{parts:010d}.parquet"
            table = pa.Table.from_pylist(actions[number::parts], pa.schema(fields))
            pq.write_table(table, log / f"{self.version:020d}.checkpoint.{ending}")
        for number in range(self.version + 1 if clean else 0):
            (log / f"{number:020d}.json").unlink(missing_ok=True)

    def _commit(self, *actions: Mapping[str, Any]) -> None:
        self.version += 1
        lines = [json.dumps({"commitInfo": {"operation": "WRITE"}}), *map(json.dumps, actions)]
        (self.path / "_delta_log" / f"{self.version:020d}.json").write_text("\n".join(lines) + "\n")
