"""The carriage of the rows of a layout, and of the metadata of any store, to other partitions.

Rule of this module: it knows what a layout has to declare, but no layout. A layout is carried by a ``LayoutCarriage``
that is defined where its bytes are coded.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from millpond.stores.specs.store_spec import StoreKind

Rule: TypeAlias = Callable[[Sequence[bytes]], bytes | None]
"""A function from the metadata of one name in several partitions to the metadata of one; None to drop them."""

NO_LAYOUT: Final = ""
"""The name, among those of layouts, of the carriage for stores of any layout and of none."""


class OldStore(Protocol):
    """A store as one partition has it before it is carried."""

    @property
    def name(self) -> str:
        """The name for errors."""

    @property
    def kind(self) -> StoreKind:
        """The kind of the store."""

    def get_metadata(self, name: str) -> bytes | None:
        """Return the metadata, as ``Store.get_metadata`` does."""

    def metadata_names(self, prefix: str) -> list[str]:
        """Return the names, as ``WritableStore.metadata_names`` does."""

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Return all rows but metadata, in key order; each version by its time."""


Revision: TypeAlias = Callable[[Sequence[OldStore], Callable[[bytes], bool]], Mapping[str, bytes | None]]


@dataclass(frozen=True)
class LayoutCarriage:
    """The carriage of the rows of a layout.

    Attributes:
        record_key: ``record_key(row)`` returns the bytes of the record's key within the key of an entry, or None if the
            record has none; None in its place if the store's kind determines where the key is.
        rules: the rules for metadata, by name, or by the beginning of names and ``*``. Without a rule it is copied to
            every partition; where partitions become one, their metadata must be equal.
        revise: ``revise(olds, belongs)`` returns the metadata that one new partition gets beside these, by name; None
            takes away the result of a rule. ``olds`` are the old partitions with rows for it, and ``belongs(key)``
            returns whether the record's key, as in the rows, goes to it. It is called only where partitions become one,
            or one becomes several.
        other_key: likewise the key of the record of another input for which an entry is kept as well, and by which it
            finds no partition; None if there is none.
        seeded: ``seeded(time, users)`` returns the metadata of a store that is seeded, by name: ``time`` is the latest
            timestamp of its values, and ``users`` the number of processors that may keep something in it. None if the
            store holds more than its entries, and cannot be seeded.
    """

    record_key: Callable[[bytes], bytes | None] | None = None
    rules: Mapping[str, Rule] = field(default_factory=dict)
    revise: Revision | None = None
    other_key: Callable[[bytes], bytes] | None = None
    seeded: Callable[[int, int], Mapping[str, bytes]] | None = None


def greatest(found: Sequence[bytes]) -> bytes:
    """Return the greatest: of times and counts, which compare as their bytes do, the latest and the highest."""
    return max(found)


def least(found: Sequence[bytes]) -> bytes:
    """Return the least, for a time by which something still waits."""
    return min(found)


def forgotten(found: Sequence[bytes]) -> None:
    """Return nothing: the store finds out anew."""
