"""MessagePack of whole columns: the bytes that ``msgpack`` makes of physical values, and back, without the objects.

Rule of this module: the bytes are those of ``msgpack.packb(values)`` for ``values`` of ``to_physical``, to the byte. It
reads such bytes; anything else is ``pyarrow.ArrowInvalid``, and reading value by value then finds the fault, or reads
it.

Each value is a *head*, a tag and a part of fixed size behind it, and perhaps a *body*: the bytes of a string, the
elements of a list. Heads lie in a matrix with a row for each value, whose first bytes count.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.encoding.nulls import spread
from millpond.stores.encoding.rows.byte_columns import (
    Array,
    Bytes,
    Integers,
    Mask,
    SideBySide,
    binary_of,
    buffer,
    headed,
    or_null,
    runs_of,
    texts_at,
)
from millpond.stores.encoding.rows.physical import (
    SHORT_DECIMAL,
    WHOLE,
    around,
    big_endian,
    check_text,
    from_integers,
    from_wide,
    is_short,
    is_word,
    null_mask,
    of_halves,
    plain_leaves,
    unscaled,
    validity,
    words,
)

pc: Any = _compute

_NIL: Final = 0xC0
_FALSE: Final = 0xC2
_BIN: Final = 0xC4
_DOUBLE: Final = 0xCB
_UNSIGNED: Final = 0xCC
_SIGNED: Final = 0xD0
_STR: Final = 0xD9
_ARRAY: Final = 0xDC
_FIXED_STR: Final = 0xA0
_FIXED_ARRAY: Final = 0x90
_NEGATIVE: Final = 0xE0

_POSITIVE_LIMITS: Final = (127, 255, 65535, 2**32 - 1)
"""The greatest integers whose heads have 1, 2, 3 and 5 bytes; those beyond have 9."""

_NEGATIVE_LIMITS: Final = (31, 127, 32767, 2**31 - 1)
"""The same for negative ones, with all bits inverted."""

_HEAD_SIZES: Final = np.array([1, 2, 3, 5, 9], np.int64)
_LONGEST: Final = 9

FEW: Final = 200
"""The number of rows below which they are faster read and written as objects."""

_MOST_ELEMENTS: Final = 64
_SIDE_BY_SIDE: Final = 256
"""Lists of more elements than the first number are read here if all elements have the same size, or if on average as
many lists as the second number have an element at a place: each place takes one look at all lists."""


def _widths() -> Integers:
    """Return the number of bytes of a value by its tag; 0 if the tag does not tell, or if it may be nested."""
    widths = np.zeros(256, np.int64)
    widths[:_FIXED_ARRAY] = 1
    widths[_FIXED_ARRAY - 16 : _FIXED_ARRAY] = 0
    widths[[_NIL, _FALSE, _FALSE + 1]] = 1
    widths[_NEGATIVE:] = 1
    widths[_FIXED_STR : _FIXED_STR + 32] = np.arange(1, 33)
    widths[_DOUBLE] = _LONGEST
    widths[_UNSIGNED : _UNSIGNED + 4] = widths[_SIGNED : _SIGNED + 4] = [2, 3, 5, 9]
    return widths


_WIDTHS: Final = _widths()


def pack_values(column: Array) -> Array:
    """Return the bytes of each value, null included, as a binary column without nulls.

    Raises:
        RecordError: a value cannot be held: a string that is not UTF-8, a time beyond the range of microseconds.
    """
    type_ = column.type
    if pa.types.is_struct(type_):
        fields = [pack_values(column.field(place)) for place in range(type_.num_fields)]
        return or_null(column, packed_rows(fields, len(column)), _NIL)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_map(type_):
        return _lists(column)
    if type_ == WHOLE:
        return _wholes(column)
    return _leaves(plain_leaves(column))


def packed_rows(values: Sequence[Array], size: int, first: int | None = None) -> Array:
    """Return the MessagePack array of the values of each row.

    Args:
        values: the result of ``pack_values`` for each column.
        size: the number of rows.
        first: an integer in front of the values.
    """
    count = len(values) + (first is not None)
    head = _of_lengths(np.array([count]), *_ARRAYS)[0].as_py()
    if first is not None:
        head += _integers(np.array([first]), None)[0].as_py()
    if not values:
        return pa.array([head] * size, pa.binary())
    return pc.binary_join_element_wise(pa.scalar(head, pa.binary()), *values, b"")


def first_integers(rows: Array) -> Integers:
    """Return the integer that the array of each row begins with.

    Raises:
        pyarrow.ArrowInvalid: a row is no such array.
    """
    reader = _Reader.of(pc.binary_slice(rows, 0, 2 * _LONGEST))
    reader.lengths(*_ARRAYS)
    return reader.numbers()[0]


def array_lengths(rows: Array) -> Integers:
    """Return the number of values in the array of each row.

    Raises:
        pyarrow.ArrowInvalid: a row is no such array.
    """
    lengths, absent = _Reader.of(pc.binary_slice(rows, 0, _LONGEST)).lengths(*_ARRAYS)
    if absent.any():
        raise pa.ArrowInvalid("a row is no array")
    return lengths


def unpack_columns(rows: Array, types: Sequence[pa.DataType | None]) -> list[Array]:
    """Return the columns of rows, each of which is a MessagePack array of one value for each column.

    Args:
        rows: a binary column without nulls.
        types: the types of the columns, in their one form (``normalized``); None for a column of any values, which are
            passed over, and come as nulls.

    Raises:
        pyarrow.ArrowInvalid: a row is no such array, or is not as ``msgpack`` writes it.
    """
    reader = _Reader.of(rows)
    lengths, absent = reader.lengths(*_ARRAYS)
    if absent.any() or (lengths != len(types)).any():
        raise pa.ArrowInvalid(f"a row is no array of {len(types)} values")
    columns = [reader.skip() if type_ is None else reader.read(type_) for type_ in types]
    reader.finish()
    return columns


def _leaves(leaves: Array) -> Array:
    type_ = leaves.type
    nulls = null_mask(leaves) if leaves.null_count else None
    if pa.types.is_null(type_):
        return binary_of(np.full((len(leaves), 1), _NIL, np.uint8))
    if pa.types.is_boolean(type_):
        tags = pc.if_else(leaves, _FALSE + 1, _FALSE).fill_null(_NIL).to_numpy().astype(np.uint8)
        return binary_of(tags[:, None])
    if pa.types.is_floating(type_):
        numbers = words(leaves).astype(">f8")
        return headed([_DOUBLE], numbers[:, None].view(np.uint8), nulls, _NIL)
    if pa.types.is_decimal(type_) and type_.precision > SHORT_DECIMAL:
        return headed([_BIN, 16], big_endian(unscaled(leaves)).reshape(-1, 16), nulls, _NIL)
    if pa.types.is_decimal(type_):
        return _integers(unscaled(leaves)[:, 0].view(np.int64), nulls)
    if is_word(type_):
        return _integers(words(leaves).astype(np.int64), nulls)
    check_text(leaves)
    return _texts(leaves)


def _wholes(column: Array) -> Array:
    halves = unscaled(column)
    short, nulls = is_short(halves), null_mask(column) if column.null_count else None
    integers = _integers(np.ascontiguousarray(halves[:, 0]).view(np.int64), nulls)
    if short.all():
        return integers
    return pc.if_else(pa.array(short), integers, headed([_BIN, 16], big_endian(halves).reshape(-1, 16), nulls, _NIL))


def _lists(column: Array) -> Array:
    if not len(column):
        return pa.array([], pa.binary())
    offsets = column.offsets.to_numpy().astype(np.int64)
    first = int(offsets[0])
    offsets = offsets - first
    within = pack_values(column.values.slice(first, int(offsets[-1])))
    heads = _of_lengths(np.diff(offsets), *_ARRAYS)
    return or_null(column, pc.binary_join_element_wise(heads, runs_of(within, offsets), b""), _NIL)


def _texts(column: Array) -> Array:
    lengths = pc.binary_length(column)
    kinds = _STRINGS if pa.types.is_string(column.type) else _BINARIES
    heads = _of_lengths(lengths.fill_null(0).to_numpy().astype(np.int64), *kinds)
    bodies = column.cast(pa.binary())
    return or_null(column, pc.binary_join_element_wise(heads, bodies, b""), _NIL)


_ARRAYS: Final = (_FIXED_ARRAY, 15, _ARRAY, (2, 4))
_STRINGS: Final = (_FIXED_STR, 31, _STR, (1, 2, 4))
_BINARIES: Final = (0, -1, _BIN, (1, 2, 4))
"""The tag that holds a length itself, the greatest such length, the first of the tags with a length behind them, and
the number of its bytes for each of these."""


def _of_lengths(lengths: Integers, fixed: int, most: int, tag: int, sizes: Sequence[int]) -> Array:
    """Return the heads of strings, bytes or arrays of these lengths."""
    if len(lengths) and int(lengths.max()) <= most:
        return binary_of((lengths | fixed).astype(np.uint8)[:, None])
    kinds = sum((lengths > 256**size - 1).astype(np.int64) for size in sizes[:-1])
    sized = np.take(np.array(sizes), kinds)
    matrix = _matrix(lengths, 4, sized)
    matrix[:, 0] = tag + kinds
    within = lengths <= most
    matrix[within, 0] = lengths[within] | fixed
    return binary_of(matrix, np.where(within, 1, 1 + sized))


def _integers(numbers: Integers, nulls: Mask | None) -> Array:
    negative = numbers < 0
    size = np.where(negative, ~numbers, numbers)
    kinds = np.zeros(len(numbers), np.int64)
    for positive_limit, negative_limit in zip(_POSITIVE_LIMITS, _NEGATIVE_LIMITS, strict=True):
        kinds += size > np.where(negative, negative_limit, positive_limit)
    lengths = _HEAD_SIZES[kinds]
    matrix = _matrix(numbers, 8, lengths - 1)
    tags = np.where(negative, _SIGNED - 1, _UNSIGNED - 1) + kinds
    matrix[:, 0] = np.where(kinds == 0, numbers & 0xFF, tags)
    if nulls is not None:
        matrix[nulls, 0] = _NIL
        lengths[nulls] = 1
    return binary_of(matrix, lengths)


def _matrix(numbers: Integers, size: int, significant: Integers) -> Bytes:
    """Return a row for each number, with room for a tag and then the number's last bytes, big-endian."""
    matrix = np.empty((len(numbers), 1 + size), np.uint8)
    unsigned = numbers.view(np.uint64) << (8 * np.minimum(8 - significant, 7)).astype(np.uint64)
    matrix[:, 1:] = unsigned.astype(">u8")[:, None].view(np.uint8)[:, :size]
    return matrix


class _Kind(NamedTuple):
    """The meaning of a tag.

    Attributes:
        body: the number of bytes behind it.
        number: returns the numbers in these bytes, or in the tag itself.
    """

    body: int
    number: Callable[[Bytes], Any]


def _big_endian(type_: str) -> Callable[[Bytes], Any]:
    return lambda data: np.ascontiguousarray(data).view(type_)[:, 0]


_INTEGER_KINDS: Final = {
    _UNSIGNED: _Kind(1, _big_endian(">u1")),
    _UNSIGNED + 1: _Kind(2, _big_endian(">u2")),
    _UNSIGNED + 2: _Kind(4, _big_endian(">u4")),
    _UNSIGNED + 3: _Kind(8, _big_endian(">u8")),
    _SIGNED: _Kind(1, _big_endian(">i1")),
    _SIGNED + 1: _Kind(2, _big_endian(">i2")),
    _SIGNED + 2: _Kind(4, _big_endian(">i4")),
    _SIGNED + 3: _Kind(8, _big_endian(">i8")),
}


class _Reader(SideBySide):
    """A reader of the values of many rows side by side."""

    def read(self, type_: Any) -> Array:
        """Return the next value of each row.

        Raises:
            pyarrow.ArrowInvalid: one is not of that type.
        """
        if pa.types.is_struct(type_):
            return self._struct(type_)
        if pa.types.is_list(type_):
            return self._list(type_, type_.value_field.type)
        if pa.types.is_map(type_):
            return self._list(type_, pa.struct([type_.key_field, type_.item_field]))
        if pa.types.is_boolean(type_):
            return self._booleans()
        if pa.types.is_floating(type_):
            return self._floats(type_)
        if pa.types.is_decimal(type_) and type_.precision > SHORT_DECIMAL:
            return self._wide(type_)
        if type_ == WHOLE:
            return self._wholes()
        if type_ in (pa.string(), pa.binary()):
            return self._texts(type_)
        numbers, nulls = self.numbers()
        if pa.types.is_null(type_):
            if not nulls.all():
                raise pa.ArrowInvalid("a value is not null")
            return pa.nulls(len(numbers))
        return from_integers(pa.array(numbers, mask=nulls), type_)

    def lengths(self, fixed: int, most: int, tag: int, sizes: Sequence[int]) -> tuple[Integers, Mask]:
        """Return the lengths of strings, bytes or arrays, whose heads are read, and a mask of nulls instead of them.

        Raises:
            pyarrow.ArrowInvalid: one is something else.
        """
        tags = self.first_bytes()
        nulls, within = tags == _NIL, (tags >= fixed) & (tags <= fixed + most)
        lengths = np.where(within, tags.astype(np.int64) - fixed, 0)
        heads = np.ones(len(tags), np.int64)
        for number, size in enumerate(sizes):
            places = np.flatnonzero(tags == tag + number)
            if len(places):
                lengths[places] = self._behind(places, _Kind(size, _big_endian(f">u{size}")))
                heads[places] += size
        if not (within | nulls | ((tags >= tag) & (tags < tag + len(sizes)))).all():
            raise pa.ArrowInvalid("a value is of another type")
        self.go_to(self.at + heads)
        return lengths, nulls

    def _behind(self, places: Integers, kind: _Kind) -> Any:
        """Return the numbers behind the tags of some rows."""
        return kind.number(self.data[self.at[places][:, None] + np.arange(1, 1 + kind.body)])

    def numbers(self) -> tuple[Integers, Mask]:
        """Return integers, and a mask of nulls instead of them."""
        tags = self.first_bytes()
        numbers, heads, nulls = tags.astype(np.int8).astype(np.int64), np.ones(len(tags), np.int64), tags == _NIL
        read = (tags < 128) | (tags >= _NEGATIVE) | nulls
        if not read.all():
            for tag, kind in _INTEGER_KINDS.items():
                places = np.flatnonzero(tags == tag)
                if len(places):
                    found = self._behind(places, kind)
                    numbers[places] = found.astype(np.int64)
                    heads[places] += kind.body
                    read[places] = (found >= 0) == (numbers[places] >= 0)
            if not read.all():
                raise pa.ArrowInvalid("a value is no integer of 64 bits")
        self.go_to(self.at + heads)
        return numbers, nulls

    def _booleans(self) -> Array:
        tags = self.first_bytes()
        nulls = tags == _NIL
        if not (nulls | (tags == _FALSE) | (tags == _FALSE + 1)).all():
            raise pa.ArrowInvalid("a value is no truth value")
        self.go_to(self.at + 1)
        return pa.array(tags == _FALSE + 1, mask=nulls)

    def _floats(self, type_: pa.DataType) -> Array:
        tags = self.first_bytes()
        nulls = tags == _NIL
        if not (nulls | (tags == _DOUBLE)).all():
            raise pa.ArrowInvalid("a value is no float")
        numbers, places = np.zeros(len(tags)), np.flatnonzero(~nulls)
        numbers[places] = self._behind(places, _Kind(8, _big_endian(">f8")))
        self.go_to(self.at + np.where(nulls, 1, _LONGEST))
        with np.errstate(all="ignore"):  # Numbers beyond float32 become infinite, as one by one.
            narrow = numbers.astype(np.float32 if type_ == pa.float32() else np.float64)
        return pa.array(narrow, mask=nulls, from_pandas=False)

    def _wide(self, type_: Any) -> Array:
        lengths, nulls = self.lengths(*_BINARIES)
        if not ((lengths == 16) | nulls).all():
            raise pa.ArrowInvalid("a decimal does not have 16 bytes")
        starts = self.at
        self.go_to(starts + lengths)
        return from_wide(self.data[starts[:, None] + np.arange(16)], nulls, type_)

    def _wholes(self) -> Array:
        long = self.first_bytes() == _BIN
        halves, nulls = np.zeros((len(long), 2), np.int64), np.zeros(len(long), np.bool_)
        short, wide = self._part(~long), self._part(long)
        numbers, nulls[~long] = short.numbers()
        halves[~long] = np.stack([numbers, numbers >> 63], axis=1)
        self._resume(short, ~long)
        if long.any():
            halves[long] = unscaled(wide._wide(WHOLE)).view(np.int64)
            self._resume(wide, long)
        return of_halves(halves, nulls, WHOLE)

    def _texts(self, type_: Any) -> Array:
        lengths, nulls = self.lengths(*(_STRINGS if pa.types.is_string(type_) else _BINARIES))
        starts = self.at
        self.go_to(starts + lengths)
        return texts_at(self.data, starts, lengths, validity(nulls), type_)

    def skip(self) -> Array:
        """Pass over the next value of each row, whatever it is; return nulls for them."""
        left = np.ones(len(self.at), np.int64)
        for _ in range(_SIDE_BY_SIDE):
            more = left > 0
            if not more.any():
                return pa.nulls(len(left))
            part = self._part(more)
            left[more] += part._step() - 1
            self._resume(part, more)
        raise pa.ArrowInvalid("a list is passed over one by one")

    def _step(self) -> Integers:
        """Pass over a value of each row, but for the elements of an array; return how many of these come next."""
        tags = self.first_bytes()
        elements = np.zeros(len(tags), np.int64)
        rest = _WIDTHS[tags] == 0
        for fixed, most, tag, sizes in (_ARRAYS, _STRINGS, _BINARIES):
            within = (tags >= fixed) & (tags <= fixed + most)
            rows = rest & (within | ((tags >= tag) & (tags < tag + len(sizes))))
            if rows.any():
                part = self._part(rows)
                lengths, _ = part.lengths(fixed, most, tag, sizes)
                if tag == _ARRAY:
                    elements[rows] = lengths
                else:
                    part.go_to(part.at + lengths)
                self._resume(part, rows)
                rest &= ~rows
        if rest.any():
            raise pa.ArrowInvalid("a value is of a type that is not read here")
        self.go_to(self.at + _WIDTHS[tags])
        return elements

    def _struct(self, type_: Any) -> Array:
        lengths, nulls = self.lengths(*_ARRAYS)
        if ((lengths != type_.num_fields) & ~nulls).any():
            raise pa.ArrowInvalid(f"a struct does not have {type_.num_fields} values")
        inner = self._part(~nulls)
        fields = [inner.read(field.type) for field in type_]
        self._resume(inner, ~nulls)
        fields = [spread(field, ~nulls) for field in fields]
        return pa.Array.from_buffers(type_, len(nulls), [validity(nulls)], children=fields)

    def _list(self, type_: Any, element: Any) -> Array:
        lengths, nulls = self.lengths(*_ARRAYS)
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        values = self._evenly_spaced(element, lengths, offsets)
        if values is None:
            values = self._place_by_place(element, lengths, offsets)
        try:
            return around(values, type_, len(lengths), [validity(nulls), buffer(offsets.astype(np.int32))])
        except ValueError as error:
            raise pa.ArrowInvalid(str(error)) from error

    def _evenly_spaced(self, element: Any, lengths: Integers, offsets: Integers) -> Array | None:
        """Return the elements of lists if those of each list have one size; else None."""
        filled = lengths > 0
        widths = np.ones(len(lengths), np.int64)
        widths[filled] = _WIDTHS[self.data[self.at[filled]]]
        ends = self.at + widths * lengths
        if (widths == 0).any() or (ends > self.ends).any():
            return None
        wide = widths.repeat(lengths)
        places = self.at.repeat(lengths) + (np.arange(offsets[-1]) - offsets[:-1].repeat(lengths)) * wide
        if (_WIDTHS[self.data[places]] != wide).any():
            return None
        self.go_to(ends)
        return _Reader(self.data, places, places + wide).read(element)

    def _place_by_place(self, element: Any, lengths: Integers, offsets: Integers) -> Array:
        """Return the elements of lists: the first ones, then the second ones, and so on."""
        most = int(lengths.max()) if len(lengths) else 0
        if most > _MOST_ELEMENTS and offsets[-1] < most * _SIDE_BY_SIDE:
            raise pa.ArrowInvalid("a list is read one by one")
        parts, places = [pa.array([], element)], [np.empty(0, np.int64)]
        for number in range(most):
            longer = lengths > number
            inner = self._part(longer)
            parts.append(inner.read(element))
            places.append(offsets[:-1][longer] + number)
            self._resume(inner, longer)
        order: Any = pa.array(np.concatenate(places).argsort(kind="stable"))
        return pa.concat_arrays(parts).take(order)

    def _part(self, rows: Mask) -> "_Reader":
        return self if rows.all() else _Reader(self.data, self.at[rows], self.ends[rows])

    def _resume(self, part: "_Reader", rows: Mask) -> None:
        """Go on where ``part``, which has these rows, has ended."""
        if part is not self:
            self.at = self.at.copy()
            self.at[rows] = part.at
