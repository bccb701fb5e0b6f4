"""``ErasedKeys``: the keys that are erased, as bytes, as values of columns, and as text."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.adapters.inspect.packed_columns import PackedKeyColumn
from millpond.adapters.inspect.store_view import StoreView
from millpond.errors import AmbiguousError, ConfigurationError, InvalidRowError, SerdeError
from millpond.stores.evolution.record_keys import RecordKeys

pc: Any = _compute

SHORTEST: Final = 4
"""The fewest bytes that mean anything when they are found."""


@dataclass(frozen=True)
class ErasedKeys:
    """Keys that are erased from the stores of one query, or of all that a checkpoint has.

    Attributes:
        data: the bytes of whole keys, as stores have them.
        columns: the values of some columns of the keys of verbs, which stand for all keys that have them.
        texts: what the keys, or the values of their columns, are as text.
        packed: of one query, reads the keys of its records, if some of their columns are given.
    """

    data: frozenset[bytes]
    columns: Sequence[Mapping[str, Any]]
    texts: frozenset[str]
    packed: PackedKeyColumn | None = None

    @classmethod
    def of(cls, views: Sequence[StoreView], keys: Sequence[Any]) -> Self:
        """Return the keys that users give.

        Args:
            views: the stores.
            keys: as ``erase`` takes them.

        Raises:
            ConfigurationError: one can be the key of no store.
        """
        packed = _packed(views)
        data: set[bytes] = set()
        columns: list[Mapping[str, Any]] = []
        texts: set[str] = set()
        for key in keys:
            errors: list[Exception] = []
            found: set[bytes] = set()
            for view in views:
                try:
                    mine = view.form.key.to_bytes(key)
                    found |= {mine, RecordKeys(view.shape, None, duplicates=False).of_key(mine)}
                except (ConfigurationError, SerdeError) as error:
                    errors.append(error)
            partly = False
            for column in packed.values() if isinstance(key, Mapping) else ():
                try:
                    partly |= column.part(key) is not None and len(key) < column.width
                except ConfigurationError as error:
                    errors.insert(0, error)
            if not found and not partly:
                raise InvalidRowError(f"{key!r} can be the key of no store: {errors[0]}")
            data |= found
            columns += [key] if partly else []
            values = key.values() if isinstance(key, Mapping) else key if isinstance(key, list | tuple) else [key]
            texts.update(map(str, values))
        return cls(frozenset(data), columns, frozenset(texts))

    def of_query(self, views: Sequence[StoreView]) -> Self:
        """Return the erased keys as the stores of one query have them.

        Raises:
            ConfigurationError: its keys have different columns, of which some are given.
        """
        packed = _packed(views)
        wanted = [
            (given, part)
            for given in self.columns
            for column in packed.values()
            if (part := _part_of(column, given)) is not None
        ]
        if wanted and len(packed) > 1:
            raise AmbiguousError(
                f"the keys of {views[0].application_id!r} have different columns, {sorted(packed)}, so nothing tells "
                f"in which of its rows {wanted[0][0]!r} is a part of the key; give whole keys, each as the list of its "
                "values"
            )
        columns = [part for _, part in wanted]
        return replace(self, columns=columns, packed=next(iter(packed.values())) if wanted else None)

    def among(self, keys: Any) -> Any:
        """Return which of an array of records' keys are erased, as a Boolean array."""
        found = pc.is_in(keys, value_set=pa.array(sorted(self.data), keys.type))
        if self.packed is None or not len(keys):
            return found
        rows = self.packed.read(keys.to_pylist())
        for wanted in self.columns:
            fits = pa.array([True] * len(keys))
            for name, value in wanted.items():
                fits = pc.and_(fits, pc.fill_null(pc.equal(pc.struct_field(rows, name), value), False))
            found = pc.or_(found, fits)
        return found

    @property
    def needles(self) -> list[bytes]:
        """The bytes that are looked for, of keys that are long enough."""
        return sorted(one for one in self._bytes if len(one) >= SHORTEST)

    @property
    def clues(self) -> list[bytes]:
        """The same, and whole keys as stores have them, however short: where none is, no row has an erased key."""
        return sorted({*self.needles, *_escaped(self.data)})

    @property
    def too_short(self) -> bool:
        """True if the text of some key is too short to be searched for."""
        return any(len(text.encode()) < SHORTEST for text in self.texts)

    @property
    def _bytes(self) -> set[bytes]:
        return _escaped({*self.data, *(text.encode() for text in self.texts)})


def _escaped(keys: Collection[bytes]) -> set[bytes]:
    """Return keys as they are, and as they are within keys of more parts."""
    return {*keys, *(key.replace(b"\x00", b"\x00\xff") for key in keys)}


def _packed(views: Sequence[StoreView]) -> dict[str, PackedKeyColumn]:
    """Return the columns of all packed keys, by their types."""
    keys = [view.form.key for view in views]
    return {str(key.type): key for key in keys if isinstance(key, PackedKeyColumn)}


def _part_of(column: PackedKeyColumn, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the given part of a key, or None if no key of the column can have it."""
    try:
        return column.part(given)
    except ConfigurationError:
        return None
