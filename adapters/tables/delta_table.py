"""``DeltaTable``: a table of Delta Lake, read by version, without Spark.

What a file of it has is read as the log says: its columns by their types, and the values of partitions.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from millpond.adapters.tables.delta_log import DeltaLog, data_path
from millpond.adapters.tables.spark_schema import arrow_schema
from millpond.adapters.tables.table_files import check_place, read_columns, row_count
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.durability.storage.uris import shown

_PLAIN: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")
"""A moment as the protocol writes it down without a zone: it is one of UTC."""


@dataclass(frozen=True, repr=False)
class DeltaTable:
    """A table of Delta Lake. A version is what its log has committed, as a whole.

    Tables with deletion vectors, mapped columns, or what else a reader has to know, are refused, with what to do. A
    timestamp that is the value of a partition is one of UTC, unless the log has its time zone.

    Args:
        path: the table's directory, or a URI of it, as a ``state_dir`` takes it.

    Raises:
        ConfigurationError: it is neither.
    """

    path: str | Path

    def __post_init__(self) -> None:
        check_place(self.path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown(str(self.path))!r})"

    def schema(self) -> pa.Schema:
        """Return the columns of the newest version; those of types that only Spark has are left out.

        Raises:
            ConfigurationError: there is no table.
            FormatError: the table needs a reader that knows more.
            CorruptFileError: its log is damaged.
        """
        log = DeltaLog(self._storage)
        return arrow_schema(log.snapshot(log.newest()).schema)

    def version(self) -> str:
        """Return the number of the newest version.

        Raises:
            ConfigurationError: there is no table.
        """
        return str(DeltaLog(self._storage).newest())

    def parts(self, version: str) -> Sequence[str]:
        """Return the files of a version, with what the log says of their columns.

        Raises:
            FormatError: the table needs a reader that knows more.
            MissingFileError: its log does not reach back so far any more.
            CorruptFileError: its log is damaged.
        """
        storage = self._storage
        snapshot = DeltaLog(storage).snapshot(int(version))
        moments = {one.name for one in arrow_schema(snapshot.schema) if getattr(one.type, "tz", None) is not None}
        return [
            json.dumps(
                {
                    "path": data_path(storage, added),
                    "partition": {
                        name: _zoned(added.values.get(name)) if name in moments else added.values.get(name)
                        for name in snapshot.partitions
                    },
                }
            )
            for added in snapshot.files.values()
        ]

    def read(self, part: str, columns: Sequence[str]) -> pa.Table:
        """Return columns of a file. Values of partitions are texts, which are cast to the columns' types.

        Raises:
            MissingFileError: it is gone.
            CorruptFileError: it is damaged.
        """
        file = json.loads(part)
        storage, path, values = self._storage, file["path"], file["partition"]
        table = read_columns(storage, path, [name for name in columns if name not in values])
        size = row_count(storage, path) if values else table.num_rows
        for name in columns:
            if name in values:
                # An empty text is null, as the protocol says.
                table = _with(table, size, name, values[name] or None)
        return table

    @property
    def _storage(self) -> Storage:
        return Storage.from_uri(self.path)


def _zoned(value: str | None) -> str | None:
    """Return a moment of a partition with the zone that it has; an empty text is none."""
    return f"{value}Z" if value and _PLAIN.fullmatch(value) else value


def _with(table: pa.Table, size: int, name: str, value: str | None) -> pa.Table:
    column: Any = pa.repeat(pa.scalar(value, pa.string()), size)
    return table.append_column(name, column) if table.num_columns else pa.table({name: column})
