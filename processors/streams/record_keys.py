"""The keys of a batch as bytes, each with its own failure if its serde refuses it."""

from typing import Any, TypeAlias

from millpond.processors.runtime.batch import Batch
from millpond.stores.serdes import Serde

EncodedKey: TypeAlias = bytes | Exception | None
"""A key's bytes, what its serde raised, or None: the record has no key, or no value and so needs none."""


def encoded_keys(serde: Serde[Any], batch: Batch) -> list[EncodedKey]:
    """The bytes of each record's key."""
    encode = serde.column_serialize
    if encode is not None and None not in batch.values:
        try:
            return list(map(encode, batch.keys))
        except Exception:  # the slow way below tells which one fails, and why
            pass
    return [
        None if key is None or value is None else _encoded(serde, key)
        for key, value in zip(batch.keys, batch.values, strict=True)
    ]


def _encoded(serde: Serde[Any], key: Any) -> bytes | Exception:
    try:
        return serde.serialize(key)
    except Exception as error:  # a user's serde may raise anything
        return error
