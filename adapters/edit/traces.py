"""Traces of erased keys: the files in which their bytes are still found.

Rule of this module: it trusts nobody. Every file is read: of Parquet files, which are compressed, all columns of bytes
and text, and of others the bytes as they are.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as _compute
import pyarrow.parquet as pq

from millpond.stores.durability.storage.storage import Storage

pc: Any = _compute

_PART: Final = 1 << 20


class Trace(NamedTuple):
    """A file in which the bytes of an erased key are found.

    Attributes:
        where: the file.
        rows: the number of rows with the bytes; 1 for a file without rows, 0 if it was not searched.
        why: what may be the reason.
    """

    where: str
    rows: int
    why: str = "such as rows of other keys that tell of it, or state of another query"

    def __str__(self) -> str:
        return f"{self.where} ({self.rows} rows; {self.why})"


def traces(places: Sequence[Storage], local_dirs: Sequence[Path], needles: Sequence[bytes]) -> Iterator[Trace]:
    """Yield the traces of what was erased, from a search of all files.

    Args:
        places: the state directory and the checkpoint.
        local_dirs: directories of local copies.
        needles: the bytes that are looked for.

    Raises:
        DurabilityError: the storage failed.
    """
    if not needles:
        return
    for storage in places:
        for path in _files(storage, ""):
            with storage.reading(path) as file:
                found = _rows_with(file, path, needles)
            if found:
                yield Trace(storage.describe(path), found)
    for local_dir in local_dirs:
        for local in sorted(one for one in local_dir.rglob("*") if one.is_file() and not one.is_symlink()):
            with local.open("rb") as file:
                found = _rows_with(file, local.name, needles)
            if found:
                yield Trace(str(local), found)


def _files(storage: Storage, directory: str) -> Iterator[str]:
    yield from (file.path for file in storage.list(directory))
    for name in storage.directories(directory):
        yield from _files(storage, f"{directory}/{name}" if directory else name)


def _rows_with(file: Any, path: str, needles: Sequence[bytes]) -> int:
    """Return how many rows of a file have any of the needles; for a file without rows, 1 if it has."""
    if not path.endswith(".parquet"):
        return int(_is_in(file, needles))
    try:
        rows = pq.ParquetFile(file)
    except pa.ArrowException:
        file.seek(0)
        return int(_is_in(file, needles))
    return sum(_rows_of(rows.read_row_group(number), needles) for number in range(rows.num_row_groups))


def _is_in(file: Any, needles: Sequence[bytes]) -> bool:
    """Return whether the bytes of a file have any of the needles; a bounded number of them is held."""
    before = b""
    while part := file.read(_PART):
        held = before + part
        if any(needle in held for needle in needles):
            return True
        before = held[-max(map(len, needles)) :]
    return False


def _rows_of(rows: pa.Table, needles: Sequence[bytes]) -> int:
    """Return how many rows of a table have one of them."""
    found = pc.less(pa.array(range(rows.num_rows)), 0)
    for column in rows.columns:
        data = column.combine_chunks()
        if pa.types.is_nested(column.type):
            data = pa.array([repr(value).encode() for value in data.to_pylist()], pa.binary())
        if pa.types.is_string(data.type) or pa.types.is_binary(data.type):
            for needle in needles:
                found = pc.or_(found, pc.fill_null(pc.match_substring(data.cast(pa.binary()), needle), False))
    return int(pc.sum(found).as_py() or 0)
