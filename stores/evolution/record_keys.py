"""The bytes of a row that are the key by which records find their partition.

Rule of this module: it reads whole columns of the keys of rows, and of data rows of a layout one by one. In key-value
stores the key is all of the row; in versioned, window and session stores it has a terminator, with times before or
after it. A key by the store's serde is written anew if the records' keys have another serde.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import ConfigurationError, CorruptStoreError, MissingSerdeError, SerdeError, UnreadableRowError
from millpond.stores.encoding.column_keys import TO_THE_END, unescaped_column
from millpond.stores.encoding.keys import DATA, INDEX, TERMINATOR, TIME_SIZE, TIMERS
from millpond.stores.encoding.partitions import NO_KEY
from millpond.stores.encoding.serdes import Serde, serde
from millpond.stores.evolution.carriage import LayoutCarriage, OldStore
from millpond.stores.evolution.shape import StoreShape
from millpond.stores.specs.store_spec import KeyForm, StoreKind
from millpond.stores.typed.windows.window import SEQUENCE_NAME
from millpond.stores.typed.windows.windowed import SUFFIX_SIZES

pc: Any = _compute
Array = Any
"""An Arrow array."""

_END = len(TERMINATOR)


class RecordKeys:
    """The records' keys in the rows of one store.

    Args:
        shape: the store.
        carriage: the carriage of its layout; None if it has none.
        duplicates: whether it is a window store that retains duplicates.

    Attributes:
        rest: the number of bytes after a terminated key, if the rows lie in segments.

    Raises:
        ConfigurationError: the keys have to be written by another serde, and one of the two is not known by its name.
    """

    def __init__(self, shape: StoreShape, carriage: LayoutCarriage | None, *, duplicates: bool) -> None:
        self._name = shape.name
        self._kind = shape.kind
        self._of_layout = None if carriage is None else carriage.record_key
        self._other_key = None if carriage is None else carriage.other_key
        self.rest = _bytes_behind_key(shape.kind, duplicates)
        written = shape.layout.key_serde if shape.layout is not None and self._of_layout is not None else None
        self._rewrite = _rewriting(shape, shape.key_serde if self._of_layout is None else written)

    @classmethod
    def of_store(cls, shape: StoreShape, olds: Iterable[OldStore], layouts: Mapping[str, LayoutCarriage]) -> Self:
        """Return the records' keys of a store as some partitions have it.

        Args:
            shape: the store.
            olds: the partitions.
            layouts: the carriage of each layout's rows, by its name.

        Raises:
            ConfigurationError: as for the constructor.
        """
        carriage = None if shape.layout is None else layouts[shape.layout.name]
        retained = any(old.get_metadata(SEQUENCE_NAME) is not None for old in olds)
        return cls(shape, carriage, duplicates=retained and shape.kind.in_segments)

    def of_rows(self, rows: Array) -> Array:
        """Return the key of the record of each row; rows are data and index rows in key order.

        Raises:
            CorruptStoreError: a row has none.
        """
        rewrite = self._rewrite
        try:
            found = self._found(rows)
            if rewrite is not None:
                keys = [None if key is None else rewrite(key) for key in found.to_pylist()]
                found = pa.array(keys, pa.binary())
            return pc.fill_null(found, NO_KEY) if found.null_count else found
        except (SerdeError, CorruptStoreError) as error:
            raise self._damage(error) from error

    def others_of_rows(self, rows: Array) -> Array | None:
        """Return the key of the record of another input that each row is also kept for; None if there are none.

        Raises:
            CorruptStoreError: a row has none.
        """
        if self._other_key is None:
            return None
        try:
            return pa.array([self._other_key(row[len(DATA) :]) for row in rows.to_pylist()], pa.binary())
        except SerdeError as error:
            raise self._damage(error) from error

    def of_key(self, key: bytes) -> bytes:
        """Return the key of a record by the key of an entry."""
        return key if self._rewrite is None else self._rewrite(key)

    def _found(self, rows: Array) -> Array:
        timers = pc.sum(pc.starts_with(rows, TIMERS)).as_py() or 0
        if timers and not self._kind.in_segments:
            rows, behind = rows.slice(0, len(rows) - timers), rows.slice(len(rows) - timers)
            return pa.concat_arrays([self._found(rows), _ended(behind, len(TIMERS) + TIME_SIZE, 0)])
        if self._of_layout is not None:
            read = self._of_layout
            return pa.array([read(row[1:]) for row in rows.to_pylist()], pa.binary())
        if self._kind.in_segments:
            return _ended(rows, len(DATA) + TIME_SIZE, self.rest)
        if not self._kind.versioned:
            return pc.binary_slice(rows, len(DATA), TO_THE_END)
        number = pc.sum(pc.starts_with(rows, DATA)).as_py() or 0
        data, index = rows.slice(0, number), rows.slice(number)
        return pa.concat_arrays([_ended(data, len(DATA), TIME_SIZE), _ended(index, len(INDEX) + TIME_SIZE, 0)])

    def _damage(self, error: object) -> UnreadableRowError:
        return UnreadableRowError(f"store {self._name!r} has a row without a record's key: {error}")


def _bytes_behind_key(kind: StoreKind, duplicates: bool) -> int:
    return TIME_SIZE * (2 if duplicates or kind.key_form is KeyForm.SESSION else 1)


def _ended(rows: Array, start: int, rest: int) -> Array:
    """Return the keys that begin at ``start`` and end before ``rest`` bytes."""
    ends = pc.binary_slice(rows, -rest - _END, -rest or TO_THE_END)
    damaged = pc.not_equal(ends, TERMINATOR)
    if pc.any(damaged).as_py():
        raise CorruptStoreError(f"the key in {rows.filter(damaged)[0].as_py()!r} does not end")
    keys = pc.binary_slice(rows, start, -rest - _END)
    return unescaped_column(keys)


def _rewriting(shape: StoreShape, written: str | None) -> Callable[[bytes], bytes] | None:
    """Return a function from the bytes of a key in a row to those of the record's key; None if they are the same."""
    wanted = shape.record_key_serde
    if written is None or written == wanted:
        return None
    if written in SUFFIX_SIZES:
        size = SUFFIX_SIZES[written]
        return lambda key: key[:-size]
    reader, writer = _known(shape, written), _known(shape, wanted)
    return lambda key: writer.serialize(reader.deserialize(key))


def _known(shape: StoreShape, name: str) -> Serde[Any]:
    try:
        return serde(name)
    except ConfigurationError as error:
        raise MissingSerdeError(
            f"the keys of store {shape.name!r} are written by the serde {shape.key_serde!r}, and those of its records "
            f"by {shape.record_key_serde!r}, of which {name!r} is not known by its name"
        ) from error
