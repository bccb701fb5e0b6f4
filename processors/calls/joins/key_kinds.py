"""The kinds of keys: the bytes of a key, and which keys can be equal, depend on them."""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from millpond.errors import NotCopartitionedError
from millpond.processors.calls.readings import Reading

MONTHS: Final[Mapping[bytes | str, bytes | str]] = {b"unit": b"month"}
"""The metadata of a column of months, so that its state is never taken for that of plain integers."""


def key_kinds(keys: pa.Schema) -> list[str]:
    """Return the kinds of key columns: integers of all sizes have the same, as they have the same bytes."""
    return ["integer" if pa.types.is_integer(field.type) and not field.metadata else _kind(field) for field in keys]


def listed_key(keys: pa.Schema) -> str:
    """Return the columns of a key with their types, for messages."""
    return ", ".join(f"{field.name}: {_kind(field)}" for field in keys)


def check_equal_keys(name: str, left: Reading, right: Reading) -> None:
    """Refuse to join columns whose equal values have other bytes.

    Raises:
        ConfigurationError: the verb ``name`` would.
    """
    one, other = left.schema(left.foreign or left.keys), right.schema(right.keys)
    if key_kinds(one) != key_kinds(other):
        raise NotCopartitionedError(
            f"the verb {name!r} joins ({listed_key(one)}) with ({listed_key(other)}), whose types differ; cast the "
            "columns of one side"
        )


def _kind(field: Any) -> str:
    return "interval of months" if dict(field.metadata or {}) == MONTHS else str(field.type)
