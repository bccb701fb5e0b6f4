"""Rows of erased keys among dead letters and late rows.

Rule of this module: it knows no kind of them. A row goes if one of its columns is a key that is erased, or has the
bytes of one.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.adapters.edit.erased_keys import ErasedKeys
from millpond.stores.cleaning.durable import LEFT_OUT
from millpond.stores.durability.storage.storage import Storage

_KEYS: Final = ("key", "key_bytes")


def erase_left_out(storage: Storage, applications: Sequence[str], erased: ErasedKeys) -> Counter[str]:
    """Write the files anew that have rows of erased keys; how many rows are gone, by the directory.

    Raises:
        DurabilityError: the storage failed.
    """
    gone: Counter[str] = Counter()
    for application_id in applications:
        for kind in sorted(LEFT_OUT):
            for name in storage.directories(f"{application_id}/{kind}"):
                directory = f"{application_id}/{kind}/{name}"
                for file in storage.list(directory):
                    if file.path.endswith(".parquet"):
                        gone[directory] += _rewrite(storage, file.path, erased)
    return +gone


def _rewrite(storage: Storage, path: str, erased: ErasedKeys) -> int:
    rows = pq.read_table(pa.BufferReader(storage.read(path)))
    kept = [not _is_of(row, erased) for row in rows.to_pylist()]
    if all(kept):
        return 0
    left = rows.filter(pa.array(kept))
    if left.num_rows:
        content = pa.BufferOutputStream()
        pq.write_table(left, content)
        storage.put(path, content.getvalue().to_pybytes())
    else:
        storage.delete(path)
    return rows.num_rows - left.num_rows


def _is_of(row: dict[str, Any], erased: ErasedKeys) -> bool:
    keys = [row.get(name) for name in _KEYS]
    if any(key in erased.data or key in erased.texts for key in keys if key is not None):
        return True
    content = [value.encode() if isinstance(value, str) else value for value in row.values()]
    return any(needle in data for data in content if isinstance(data, bytes) for needle in erased.needles)
