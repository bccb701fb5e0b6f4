"""Rows of erased keys among dead letters and late rows.

Rule of this module: a row goes if its key is one that is erased, as bytes, as text, or as the JSON of a verb's columns,
or if a header or a value is just that. What only tells of a key stays, and is found by the search.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.adapters.edit.erased_keys import ErasedKeys
from millpond.stores.cleaning.durable import LEFT_OUT
from millpond.stores.durability.storage.storage import Storage

_WHOLE: Final = ("key", "key_bytes", "value", "value_bytes")


def erase_left_out(storage: Storage, applications: Sequence[str], erased: ErasedKeys) -> Counter[str]:
    """Write the files anew that have rows of erased keys; how many rows are gone, by the directory.

    Raises:
        DurabilityError: the storage failed.
    """
    gone: Counter[str] = Counter()
    for directory, path, rows, kept in _files_with(storage, applications, erased):
        left = rows.filter(pa.array(kept))
        if left.num_rows:
            content = pa.BufferOutputStream()
            pq.write_table(left, content)
            storage.put(path, content.getvalue().to_pybytes())
        else:
            storage.delete(path)
        gone[directory] += rows.num_rows - left.num_rows
    return gone


def holds_left_out(storage: Storage, applications: Sequence[str], erased: ErasedKeys) -> bool:
    """Return whether there is anything for ``erase_left_out`` to erase.

    Raises:
        DurabilityError: the storage failed.
    """
    return any(True for _ in _files_with(storage, applications, erased))


def _files_with(
    storage: Storage, applications: Sequence[str], erased: ErasedKeys
) -> Iterator[tuple[str, str, pa.Table, list[bool]]]:
    """Yield the directory and path of each file that has rows of erased keys, its rows, and which of them stay."""
    for application_id in applications:
        for kind in sorted(LEFT_OUT):
            for name in storage.directories(f"{application_id}/{kind}"):
                directory = f"{application_id}/{kind}/{name}"
                for file in storage.list(directory):
                    if file.path.endswith(".parquet"):
                        rows = pq.read_table(pa.BufferReader(storage.read(file.path)))
                        kept = [not _is_of(row, erased) for row in rows.to_pylist()]
                        if not all(kept):
                            yield directory, file.path, rows, kept


def _is_of(row: dict[str, Any], erased: ErasedKeys) -> bool:
    headers = [one.get("value") for one in row.get("headers") or ()]
    values = {_bytes(one) for one in (*map(row.get, _WHOLE), *headers)}
    # Of a key of some columns, no value alone is the key.
    texts = () if erased.columns else map(_bytes, erased.texts)
    return not values.isdisjoint((*erased.data, *texts)) or _has_columns(row.get("key"), erased)


def _has_columns(text: str | None, erased: ErasedKeys) -> bool:
    """Return whether a key is the JSON of columns that all have an erased key's values, or have the given values."""
    try:
        key = json.loads(text or "")
    except (ValueError, RecursionError):
        return False
    if not isinstance(key, dict) or not key:
        return False
    if any(all(str(key.get(name)) == str(value) for name, value in given.items()) for given in erased.columns):
        return True
    return not erased.columns and {str(value) for value in key.values()} <= erased.texts


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
