"""Serdes as users name them: by an object, or by a built-in name."""

from typing import Any

from millpond.stores.encoding.serdes import Serde, serde

SerdeLike = str | Serde[Any]
"""A serde, or the name of one: ``bytes``, ``string``, ``int64``, ``float64``, ``json``, ``msgpack``, ``pickle``, or
``struct<name:type,...>``."""


def same_serde(one: SerdeLike | None, other: SerdeLike | None) -> bool:
    """Return whether both are known and write the same bytes."""
    return one is not None and other is not None and serde(one).name == serde(other).name


def resolved(value: SerdeLike | None) -> Serde[Any] | None:
    """Return the serde object; None if ``value`` is None."""
    return None if value is None else serde(value)
