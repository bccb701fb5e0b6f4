"""Named tuples of columns of one length, NumPy and Arrow arrays: some entries of them, and many laid end to end.

Rule of this module: it knows no tuple's fields. What a column is tells how it is taken.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Entries = TypeVar("_Entries", bound=tuple[Any, ...])


def taken(column: Any, places: npt.NDArray[Any]) -> Any:
    """Return the entries of a column at some places, or where a mask is true."""
    if isinstance(column, np.ndarray):
        return column[places]
    if are_all(places, len(column)):
        return column
    chosen: Any = pa.array(places)
    return column.filter(chosen) if places.dtype == np.bool_ else column.take(chosen)


def are_all(places: npt.NDArray[Any], size: int) -> bool:
    """Return whether places, or a mask, are all places of so many, in their order.

    >>> are_all(np.array([0, 1, 2]), 3), are_all(np.array([0, 2, 1]), 3), are_all(np.array([True, True]), 2)
    (True, False, True)
    """
    if len(places) != size:
        return False
    return bool(places.all() if places.dtype == np.bool_ else (places == np.arange(size)).all())


def chosen(entries: _Entries, places: npt.NDArray[Any]) -> _Entries:
    """Return the entries at some places, or where a mask is true.

    >>> from typing import NamedTuple
    >>> Point = NamedTuple("Point", [("name", Any), ("at", Any)])
    >>> points = Point(pa.array(["a", "b"]), np.array([3, 4]))
    >>> chosen(points, points.at > 3).name.to_pylist()
    ['b']
    """
    return _made(entries, (taken(column, places) for column in entries))


def laid_end_to_end(parts: Sequence[_Entries]) -> _Entries:
    """Return the entries of all parts, of which there is at least one."""
    columns = zip(*parts, strict=True)
    return _made(
        parts[0], (np.concatenate(one) if isinstance(one[0], np.ndarray) else pa.concat_arrays(one) for one in columns)
    )


def _made(like: _Entries, columns: Any) -> _Entries:
    return type(like)(*columns)
