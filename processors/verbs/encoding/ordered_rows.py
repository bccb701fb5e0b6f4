"""Rows behind their orders, which decide among rows of one key and time (``order=`` of a verb): the greatest counts.

A delete has an order, too::

    order (terminated), 00        a delete
    order (terminated), 01, row   any other row

So these bytes compare as the orders do, then as the rows.

Rule of this module: these bytes are written and read here and nowhere else.
"""

from collections.abc import Sequence
from typing import Final

from millpond.errors import UnreadableRowError
from millpond.stores.encoding.keys import TERMINATOR, terminated, unterminated

_DELETE: Final = b"\x00"
_ROW: Final = b"\x01"


def with_order(orders: Sequence[bytes], rows: Sequence[bytes | None]) -> list[bytes]:
    """Return rows, None for a delete, behind their orders."""
    return [
        terminated(order) + (_DELETE if row is None else _ROW + row) for order, row in zip(orders, rows, strict=True)
    ]


def order_and_row(value: bytes) -> tuple[bytes, bytes | None]:
    """Return the order and the row, None for a delete.

    >>> [order_and_row(value) for value in sorted(with_order([b"2", b"1"], [None, b"row"]))]
    [(b'1', b'row'), (b'2', None)]

    Raises:
        UnreadableRowError: the value is damaged.
    """
    end = value.find(TERMINATOR)
    start = end + len(TERMINATOR)
    if end < 0 or value[start : start + 1] not in (_DELETE, _ROW):
        raise UnreadableRowError(f"a row with an order ends before its order does: {value[:40]!r}")
    return unterminated(value[:start]), value[start + 1 :] if value[start : start + 1] == _ROW else None
