"""``ParquetTable``: a directory of Parquet files as a table that is read by version.

A version is the files that a listing shows. A file is never changed; it appears as a whole, and may go.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from millpond.adapters.tables.table_files import check_place, file_schema, read_columns
from millpond.errors import LookupTableError
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.durability.storage.uris import shown

_ENDING = ".parquet"


@dataclass(frozen=True, repr=False)
class ParquetTable:
    """The files of a directory that end with ``.parquet``; those that begin with ``_`` or ``.`` are no part of it.

    Files are added and deleted, and never changed. Where some that belong together are added, a listing may show a part
    of them; a ``DeltaTable`` has them all at once.

    Args:
        path: the directory, or a URI of it, as a ``state_dir`` takes it.

    Raises:
        ConfigurationError: it is neither.
    """

    path: str | Path

    def __post_init__(self) -> None:
        check_place(self.path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown(str(self.path))!r})"

    def schema(self) -> pa.Schema:
        """Return the columns of the file that was written last.

        Raises:
            ConfigurationError: there is no file, or there are directories.
        """
        storage = self._storage
        found = [file for file in storage.list("") if _is_part(file.path)]
        if not found:
            raise LookupTableError(f"{self!r} has no files whose names end with {_ENDING}; write one before")
        return file_schema(storage, max(found, key=lambda file: (file.modified_ms, file.path)).path)

    def version(self) -> str:
        """Return the names of the files.

        Raises:
            ConfigurationError: there are directories, and nothing says how they belong to the table.
        """
        storage = self._storage
        within = [name for name in storage.directories("") if not name.startswith(("_", "."))]
        if within:
            raise LookupTableError(
                f"{self!r} has the directory {within[0]!r}, and its files would be left out; give a directory of files "
                "alone, or for a table with partitions a DeltaTable"
            )
        return json.dumps([file.path for file in storage.list("") if _is_part(file.path)])

    def parts(self, version: str) -> Sequence[str]:
        """Return the files."""
        names: Sequence[str] = json.loads(version)
        return names

    def read(self, part: str, columns: Sequence[str]) -> pa.Table:
        """Return columns of a file.

        Raises:
            MissingFileError: it is gone.
            CorruptFileError: it is damaged.
        """
        return read_columns(self._storage, part, columns)

    @property
    def _storage(self) -> Storage:
        return Storage.from_uri(self.path)


def _is_part(name: str) -> bool:
    return name.endswith(_ENDING) and not name.startswith(("_", "."))
