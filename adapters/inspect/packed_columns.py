"""Columns of the packed keys and rows of verbs: structs, with the names and types that the application's schemas keep.

Rule of this module: it finds out what is packed how from the histories of schemas that lie beside the state
(``millpond.stores.durability.manifests.schema_log``). What these do not tell is shown as bytes.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from millpond.adapters.inspect.columns import KeyColumn, ShownColumn
from millpond.errors import InvalidRowError
from millpond.stores.durability.manifests.schema_log import Beside, kept_schemas, parted, schema_places
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec, empty_rows
from millpond.stores.evolution.shape import StoreShape
from millpond.stores.evolution.verbs.verb_sides import INPUT

_FOREIGN: Final = b"\x01"
"""The first byte of a row with a foreign key in front; a row itself is an array of MessagePack, which has another."""


GROUP_STATES: Final = "reversible-state-"
"""The beginning of the names of the serdes of a change feed's groups."""


def of_feed(stores: Iterable[StoreShape]) -> bool:
    """Return whether stores belong to the aggregate of a change feed: the store of groups is among them."""
    return any(store.value_serde.startswith(GROUP_STATES) for store in stores)


class PackedKeyColumn(KeyColumn):
    """Packed keys as structs of their columns.

    Args:
        codec: reads them.
    """

    def __init__(self, codec: KeyCodec) -> None:
        self._codec = codec
        self.type = pa.struct(list(codec.schema))

    def read(self, data: Sequence[bytes]) -> Any:
        return _structs(self._codec.unpack(data), self.type)

    def to_bytes(self, key: Any) -> bytes:
        return packed_of(self._codec.schema, key, "key", lambda row: self._codec.pack(row)[0])

    @property
    def width(self) -> int:
        """The number of a key's columns."""
        return len(self._codec.schema)

    def part(self, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the values of some of its columns as Arrow's scalars; None if not all are columns of it.

        Raises:
            ConfigurationError: a value is none of its column.
        """
        if not set(given) <= set(self._codec.schema.names):
            return None
        fields = [field for field in self._codec.schema if field.name in given]
        columns = _columns(fields, given, f"{given!r} is no part of a key of {_told(self._codec.schema)}")
        return {field.name: column[0] for field, column in zip(fields, columns, strict=True)}

    def pack(self, value: Any) -> bytes:
        return self.to_bytes(value)

    def parse(self, text: str) -> Any:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = text
        if len(self._codec.schema) == 1 and not isinstance(found, dict | list):
            only = self._codec.schema.field(0)
            return [text if pa.types.is_string(only.type) else found]
        return found


class PackedRowColumn(ShownColumn):
    """Packed rows as structs of their columns, without a foreign key that stands in front.

    Args:
        codec: reads them.
    """

    def __init__(self, codec: RowCodec) -> None:
        self._codec = codec
        self.type = pa.struct([field.with_nullable(True) for field in codec.schemas.current])

    def read(self, data: Sequence[bytes]) -> Any:
        return _structs(self._codec.unpack(_without_foreign_keys(data)), self.type)

    def pack(self, value: Any) -> bytes:
        return packed_of(self._codec.schemas.current, value, "row", lambda row: self._codec.pack(row)[0])

    def parse(self, text: str) -> Any:
        return columns_in(self._codec.schemas.current, text, "row")


@dataclass(frozen=True)
class PackedPlaces:
    """The schemas of an application, by the rows and keys that they describe.

    Attributes:
        keys: of the keys of inputs.
        rows: of their rows.
        calls: the calls of an aggregate; None if it is not one, or nothing is kept of them.
        foreign: the columns of foreign keys of inputs, which those of groups are; None if there are none.
    """

    keys: Mapping[str, KeyCodec]
    rows: Mapping[str, RowCodec]
    calls: Schemas | None = None
    foreign: Mapping[str, pa.Schema] | None = None

    @classmethod
    def of(cls, storage: Storage, application_id: str) -> "PackedPlaces":
        """Return the schemas that the storage keeps for an application.

        Raises:
            FormatError: they were written by a later release.
            CorruptFileError: a file is not as it was written.
        """
        found = {
            place: kept_schemas(storage, application_id, place) for place in schema_places(storage, application_id)
        }
        kept = {parted(place): schemas for place, schemas in found.items() if schemas is not None}
        return cls(
            {role: KeyCodec(one.current) for (role, what), one in kept.items() if what is Beside.KEY},
            {role: RowCodec(one) for (role, what), one in kept.items() if what is None},
            next((one for (_, what), one in kept.items() if what is Beside.CALLS), None),
            {role: one.current for (role, what), one in kept.items() if what is Beside.FOREIGN},
        )

    def __bool__(self) -> bool:
        """Return whether the application is a verb's."""
        return bool(self.keys)

    def key_column(self, store: str) -> KeyColumn | None:
        """Return the column of the keys of a store; None if it is not clear which keys they are."""
        if store in self.keys:
            return PackedKeyColumn(self.keys[store])
        kinds = {tuple(map(str, codec.schema.types)) for codec in self.keys.values()}
        return PackedKeyColumn(next(iter(self.keys.values()))) if len(kinds) == 1 else None

    def group_keys(self, *, by_sets: bool) -> KeyCodec:
        """Return the codec of the keys of a change feed's groups.

        Args:
            by_sets: whether groups are of several sets of columns.
        """
        columns = list((self.foreign or {}).get(INPUT, pa.schema([])))
        return KeyCodec(pa.schema([*columns, *([pa.field("grouping_id", pa.int64())] if by_sets else [])]))

    def row_column(self, store: str) -> ShownColumn | None:
        """Return the column of the rows of a store; None if it is not clear whose rows they are."""
        role, what = parted(store)
        if what is not None and role in self.rows:
            return None  # It has the orders of that input's rows.
        if store in self.rows:
            return PackedRowColumn(self.rows[store])
        return PackedRowColumn(next(iter(self.rows.values()))) if len(self.rows) == 1 else None


def _without_foreign_keys(rows: Sequence[bytes]) -> Sequence[bytes]:
    if not any(row.startswith(_FOREIGN) for row in rows):
        return rows
    # Only now, because it brings all processors with it, and most look-ups need none.
    from millpond.processors.verbs.encoding.foreign_keyed import without_foreign_key

    return [without_foreign_key(row) if row.startswith(_FOREIGN) else row for row in rows]


def _structs(rows: pa.Table, type_: Any) -> Any:
    """Return the rows of a table as structs."""
    if not rows.column_names:
        return pa.array([{}] * rows.num_rows, type_)
    columns = [column.combine_chunks() for column in rows.columns]
    return pa.StructArray.from_arrays(columns, fields=list(type_))


def columns_in(schema: pa.Schema, text: str, what: str) -> Any:
    """Return a row that is given as JSON.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRowError(
            f"{text!r} is no {what}: {error}; give a JSON object with its columns {_told(schema)}"
        ) from error


def packed_of(schema: pa.Schema, given: Any, what: str, pack: Callable[[pa.Table], bytes]) -> bytes:
    """Return a key or row, given as its columns' values in order or by name, as ``pack`` has it.

    Raises:
        ConfigurationError: it has other columns, or values that do not fit them.
    """
    if isinstance(given, Mapping):
        row = dict(given)
    else:
        values = list(given) if isinstance(given, list | tuple) else [given]
        row = dict(zip(schema.names, values, strict=False)) if len(values) == len(schema.names) else {}
    if sorted(row) != sorted(schema.names):
        raise InvalidRowError(
            f"{given!r} is no {what} of {_told(schema)}; give a value for each column, in order or by name"
        )
    columns = _columns(list(schema), row, f"{given!r} is no {what} of {_told(schema)}")
    return pack(pa.Table.from_arrays(columns, schema=schema) if columns else empty_rows(1))


def _columns(fields: Sequence[Any], row: Mapping[str, Any], refusal: str) -> list[Any]:
    """Return columns of one value each.

    Raises:
        ConfigurationError: a value is none of its column; it begins with ``refusal``.
    """
    found = []
    for field in fields:
        try:
            found.append(_column(row[field.name], field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            text = "" if pa.types.is_nested(field.type) or pa.types.is_string(field.type) else ", or the text of one"
            raise InvalidRowError(f"{refusal}: {error}; give its {field.name!r} as {field.type}{text}") from error
    return found


def _told(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name} {field.type}" for field in schema) + ")"


def _column(value: Any, type_: pa.DataType) -> Any:
    """Return a column of one value; text is read as the type, anything else is left as it is."""
    if isinstance(value, str) and not pa.types.is_string(type_):
        return pa.array([value]).cast(type_)
    made = pa.array([value], type_)
    if isinstance(value, float | Mapping | Sequence) and not _is_whole(value, made[0].as_py()):
        raise ValueError(f"{value!r} would become {made[0]}")
    return made


def _is_whole(value: Any, made: Any) -> bool:
    """Return whether a value was converted without loss: no fraction of a number, and no field of a struct."""
    if isinstance(value, float):
        return isinstance(made, float) or value.is_integer()
    if isinstance(value, Mapping) and isinstance(made, Mapping):
        return all(name in made and _is_whole(one, made[name]) for name, one in value.items())
    if isinstance(made, list | tuple):
        return all(map(_is_whole, value.items() if isinstance(value, Mapping) else value, made))
    return True
