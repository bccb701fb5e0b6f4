"""The keys of a batch as bytes, each with its own failure if its serde refuses it."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from millpond.processors.runtime.batches.batch import Batch
from millpond.stores.encoding.serdes import Serde
from millpond.stores.typed.store import column_of

EncodedKey: TypeAlias = bytes | Exception | None
"""A key's bytes, what its serde raised, or None: the record has no key, or no value and so needs none."""


def encoded_keys(serde: Serde[Any], batch: Batch) -> Sequence[EncodedKey]:
    """Return the bytes of each record's key."""
    keys = [None if value is None else key for key, value in zip(batch.keys, batch.values, strict=True)]
    try:
        return column_of(serde.serialize_many([key for key in keys if key is not None]), keys)
    except Exception:  # the slow way below tells which one fails, and why
        return [None if key is None else _encoded(serde, key) for key in keys]


def _encoded(serde: Serde[Any], key: Any) -> bytes | Exception:
    try:
        return serde.serialize(key)
    except Exception as error:  # a user's serde may raise anything
        return error
