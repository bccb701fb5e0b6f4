"""The serde of structs: dicts with the same typed entries every time, as rows of a fixed layout.

Rule of this module: one value at a time; ``millpond.stores.encoding.struct_columns`` writes and reads the same bytes
for whole Arrow columns. A row is::

    nulls     a bit for each field, in as many bytes as that takes, the first field in the lowest bit of the first byte
    numbers   8 bytes for each field, big-endian; zeros for None
                long      the number
                double    IEEE 754
                boolean   0 or 1
                string    where its UTF-8 ends in ``rest``; it begins where the one before it ends
                binary    the same for its bytes
    rest      strings and binaries one after the other

Names and types are in the name of the serde and not in the rows, so a store or a topic keeps one struct.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from millpond.errors import DuplicateColumnError, InvalidArgumentError

_FORM: Final = re.compile(r"\s*struct\s*<(.*)>\s*", re.DOTALL | re.IGNORECASE)
_FIELD: Final = re.compile(r"\s*(?:`([^`]+)`|(\w+))\s*:\s*(\w+)\s*")
_SAME: Final[Mapping[str, str]] = {"bigint": "long"}


class _Type(NamedTuple):
    """A type of fields.

    Attributes:
        code: the code of its number for ``struct``.
        takes: the classes of values that it takes, the usual one first; ``bool`` is no number.
    """

    code: str
    takes: tuple[type, ...]


_TYPES: Final[Mapping[str, _Type]] = {
    "long": _Type("q", (int,)),
    "double": _Type("d", (float, int)),
    "boolean": _Type("q", (bool,)),
    "string": _Type("q", (str,)),
    "binary": _Type("q", (bytes,)),
}
IN_REST: Final = ("string", "binary")
"""The types whose values lie in the rest of a row."""

NUMBER_SIZE: Final = 8


class StructLayout:
    """The layout of the fields of a row.

    Attributes:
        fields: the names and types of the fields, in their order; types are ``long``, ``double``, ``boolean``,
            ``string`` and ``binary``.
        null_bytes: the number of bytes that mark the fields that are None.
        size: the number of bytes before the rest.
    """

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self.fields = tuple(fields)
        self.null_bytes = (len(fields) + 7) // 8
        self.size = self.null_bytes + NUMBER_SIZE * len(fields)
        self._names = [name for name, _ in fields]
        self._usual = [_TYPES[type_].takes[0] for _, type_ in fields]
        self._in_rest = [(place, type_ == "string") for place, (_, type_) in enumerate(fields) if type_ in IN_REST]
        self._booleans = [place for place, (_, type_) in enumerate(fields) if type_ == "boolean"]
        self._numbers = struct.Struct(">" + "".join(_TYPES[type_].code for _, type_ in fields))

    def pack(self, value: Any) -> bytes:
        """Return the row of a dict.

        Raises:
            ValueError: it has other entries, or one of another type.
            struct.error: a number is too large.
        """
        numbers = self._entries(value)
        missing = [place for place, entry in enumerate(numbers) if entry is None] if None in numbers else ()
        nulls, end = 0, 0
        for place in missing:
            nulls |= 1 << place
            numbers[place] = 0
        rest = []
        for place, is_text in self._in_rest:
            entry: Any = numbers[place] or b""
            rest.append(entry.encode() if is_text and entry else entry)
            end += len(rest[-1])
            numbers[place] = end
        return b"".join((nulls.to_bytes(self.null_bytes, "little"), self._numbers.pack(*numbers), *rest))

    def _entries(self, value: Any) -> list[Any]:
        """Return the entries of a dict, in the order of the fields."""
        names = self._names
        if not isinstance(value, Mapping) or len(value) != len(names) or not all(map(value.__contains__, names)):
            raise ValueError(f"it is not a dict of exactly {', '.join(self._names)}")
        entries = [value[name] for name in self._names]
        if list(map(type, entries)) != self._usual:
            for (name, type_), entry in zip(self.fields, entries, strict=True):
                fits = isinstance(entry, _TYPES[type_].takes) and (type_ == "boolean" or not isinstance(entry, bool))
                if entry is not None and not fits:
                    raise ValueError(f"{name!r} is of type {type(entry).__name__}, not {type_}")
        return entries

    def unpack(self, data: bytes) -> dict[str, Any]:
        """Return the dict of a row.

        Raises:
            ValueError: it is not a row of these fields.
            struct.error: it is too short.
        """
        nulls = int.from_bytes(data[: self.null_bytes], "little")
        entries = list(self._numbers.unpack_from(data, self.null_bytes))
        end = self.size
        for place, is_text in self._in_rest:
            start, end = end, self.size + entries[place]
            if not start <= end <= len(data):
                raise ValueError(f"{self._names[place]!r} does not end within the row")
            entries[place] = data[start:end].decode() if is_text else data[start:end]
        if end != len(data) or nulls >> len(entries):
            raise ValueError("it has more fields")
        for place in self._booleans:
            entries[place] = bool(entries[place])
        if nulls:
            entries = [None if nulls >> place & 1 else entry for place, entry in enumerate(entries)]
        return dict(zip(self._names, entries, strict=True))


def struct_layout(name: str) -> StructLayout | None:
    """Return the layout of the name ``struct<name:type,...>``; None if the name is of another form.

    Raises:
        ConfigurationError: a field is not ``name:type`` with a known type, or two have the same name.

    >>> struct_layout("struct<carrier: string, flight: bigint>").fields
    (('carrier', 'string'), ('flight', 'long'))
    """
    found = _FORM.fullmatch(name)
    if found is None:
        return None
    fields = [_field(name, part) for part in found[1].split(",")]
    names = [field for field, _ in fields]
    if len(set(names)) < len(names):
        raise DuplicateColumnError(f"the serde {name!r} has two fields of the same name; rename one")
    return StructLayout(fields)


def _field(name: str, part: str) -> tuple[str, str]:
    field = _FIELD.fullmatch(part)
    type_ = "" if field is None else field[3].lower()
    type_ = _SAME.get(type_, type_)
    if field is None or type_ not in _TYPES:
        raise InvalidArgumentError(
            f"the serde {name!r} has the field {part.strip()!r}; write fields as name:type, of the types "
            f"{', '.join(_TYPES)}, and separate them by commas"
        )
    return field[1] or field[2], type_
