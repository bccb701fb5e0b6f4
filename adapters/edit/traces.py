"""Where the bytes of erased keys are still found.

Rule of this module: it trusts nobody. Every file is read: of Parquet files, which are compressed, all columns of bytes
and text, and of others the bytes as they are.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as _compute
import pyarrow.parquet as pq

from millpond.adapters.edit.erased_keys import ErasedKeys
from millpond.stores.durability.storage.storage import Storage

pc: Any = _compute

_PART: Final = 1 << 20


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
                with storage.reading(path) as file:
                    found = _rows_with(file, path, erased.needles)
                if found:
                    yield Trace(storage.describe(path), found)
    for local_dir in local_dirs:
        for local in sorted(one for one in local_dir.rglob("*") if one.is_file() and not one.is_symlink()):
            with local.open("rb") as file:
                found = _rows_with(file, local.name, erased.needles)
            if found:
                yield Trace(str(local), found)


def _is_of(name: str, application_id: str) -> bool:
    """Whether a directory is that of an application, or of the whole job of a verb."""
    return application_id == name or application_id.startswith(f"{name}.")


def _files(storage: Storage, directory: str) -> Iterator[str]:
    yield from (file.path for file in storage.list(directory))
    for name in storage.directories(directory):
        yield from _files(storage, f"{directory}/{name}" if directory else name)


def _rows_with(file: Any, path: str, needles: Sequence[bytes]) -> int:
    """In how many rows of a file any of the needles is; of one without rows, 1 if it is there."""
    if not path.endswith(".parquet"):
        return int(_is_in(file, needles))
    try:
        rows = pq.ParquetFile(file)
    except pa.ArrowException:
        file.seek(0)
        return int(_is_in(file, needles))
    return sum(_rows_of(rows.read_row_group(number), needles) for number in range(rows.num_row_groups))


def _is_in(file: Any, needles: Sequence[bytes]) -> bool:
    """Whether the bytes of a file have any of the needles; a bounded number of them is held."""
    before = b""
    while part := file.read(_PART):
        held = before + part
        if any(needle in held for needle in needles):
            return True
        before = held[-max(map(len, needles), default=0) :]
    return False


def _rows_of(rows: pa.Table, needles: Sequence[bytes]) -> int:
    """How many rows of a table have one of them."""
    found = pa.chunked_array([pa.array([False] * rows.num_rows)])
    for column in rows.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            data = column.cast(pa.binary())
            for needle in needles:
                found = pc.or_(found, pc.fill_null(pc.match_substring(data, needle), False))
    return int(pc.sum(found).as_py() or 0)
