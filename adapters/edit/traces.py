"""Where the bytes of erased keys are still found.

Rule of this module: it trusts nobody. Every file is read: of Parquet files, which are compressed, all columns of bytes
and text, and of others the bytes as they are.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as _compute
import pyarrow.parquet as pq

from millpond.adapters.edit.erased_keys import ErasedKeys
from millpond.stores.durability.storage.storage import Storage

pc: Any = _compute


class Trace(NamedTuple):
    """A file in which the bytes of an erased key are found.

    Attributes:
        where: the file.
        rows: in how many rows; 1 where it has none.
    """

    where: str
    rows: int

    def __str__(self) -> str:
        return f"{self.where} ({self.rows} rows, such as those of other keys that tell of them)"


def traces(
    places: Sequence[Storage], local_dirs: Sequence[Path], applications: Sequence[str], erased: ErasedKeys
) -> Iterator[Trace]:
    """Search all files for what was erased.

    Args:
        places: the state directory, of which only the applications are searched, and the checkpoint.
        local_dirs: directories of local copies.
        applications: the query's.
        erased: what was erased.

    Raises:
        DurabilityError: the storage failed.
    """
    state, *others = places
    known = [name for name in state.directories("") if any(_is_of(name, one) for one in applications)]
    for storage, directories in ((state, known), *((other, [""]) for other in others)):
        for directory in directories:
            for path in _files(storage, directory):
                found = _rows_with(storage.read(path), path, erased.needles)
                if found:
                    yield Trace(storage.describe(path), found)
    for local_dir in local_dirs:
        for file in sorted(one for one in local_dir.rglob("*") if one.is_file() and not one.is_symlink()):
            found = _rows_with(file.read_bytes(), file.name, erased.needles)
            if found:
                yield Trace(str(file), found)


def _is_of(name: str, application_id: str) -> bool:
    """Whether a directory is that of an application, or of the whole job of a verb."""
    return application_id == name or application_id.startswith(f"{name}.")


def _files(storage: Storage, directory: str) -> Iterator[str]:
    yield from (file.path for file in storage.list(directory))
    for name in storage.directories(directory):
        yield from _files(storage, f"{directory}/{name}" if directory else name)


def _rows_with(content: bytes, path: str, needles: Sequence[bytes]) -> int:
    raw = int(any(needle in content for needle in needles))
    if not path.endswith(".parquet"):
        return raw
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
    except pa.ArrowException:
        return raw
    return max(raw, sum(_rows_of(file.read_row_group(number), needles) for number in range(file.num_row_groups)))


def _rows_of(rows: pa.Table, needles: Sequence[bytes]) -> int:
    """How many rows of a table have one of them."""
    found = pa.chunked_array([pa.array([False] * rows.num_rows)])
    for column in rows.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            data = column.cast(pa.binary())
            for needle in needles:
                found = pc.or_(found, pc.fill_null(pc.match_substring(data, needle), False))
    return int(pc.sum(found).as_py() or 0)
