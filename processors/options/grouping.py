"""Grouping sets: several sets of columns, by each of which the same rows are grouped.

Rule of this module: it knows columns by their names, and the keys of rows as columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from millpond.errors import ConfigurationError, DuplicateColumnError, InvalidArgumentError

GROUPING_ID: Final = "grouping_id"
"""The column that says of which grouping set a result is, as ``grouping_id()`` of Spark SQL does."""

MOST_SETS: Final = 4_096
"""More sets are refused: each row is as many rows."""

MOST_COLUMNS: Final = 63
"""So many bits has a ``grouping_id``."""


@dataclass(frozen=True, repr=False)
class GroupingSets:
    """Several sets of columns, by each of which rows are grouped; made by ``cube``, ``rollup`` and ``grouping_sets``.

    Attributes:
        columns: all columns, in the order of the bits of ``grouping_id``, of which the first is the highest.
        sets: the sets, by ``grouping_id``.

    Raises:
        ConfigurationError: there is no column, one is there twice, a set is there twice, or there are too many.
    """

    columns: tuple[str, ...]
    sets: tuple[frozenset[str], ...]

    def __post_init__(self) -> None:
        twice = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if twice:
            raise DuplicateColumnError(f"grouping sets name {', '.join(map(repr, twice))} twice; give each column once")
        if not self.columns:
            raise InvalidArgumentError("grouping sets have no column; write by=[] for one result of all rows")
        if len(self.columns) > MOST_COLUMNS:
            raise InvalidArgumentError(
                f"grouping sets have {len(self.columns)} columns; give at most {MOST_COLUMNS}, which are the bits of "
                f"{GROUPING_ID}"
            )
        if len(self.sets) > MOST_SETS:
            raise _too_many(len(self.sets))
        ordered = tuple(sorted(self.sets, key=self.id_of))
        if len(set(ordered)) < len(ordered):
            (first, *_) = (one for one in ordered if ordered.count(one) > 1)
            raise DuplicateColumnError(f"the grouping set {self._named(first)} is there twice; give each once")
        object.__setattr__(self, "sets", ordered)

    def __repr__(self) -> str:
        return f"grouping_sets([{', '.join(map(str, map(self._named, self.sets)))}])"

    @property
    def common(self) -> frozenset[str]:
        """The columns that all sets have."""
        return frozenset.intersection(*self.sets)

    def id_of(self, one: frozenset[str]) -> int:
        """Return the ``grouping_id`` of a set: a bit for each column, which is 1 for one that the set has not."""
        bits = "".join("0" if name in one else "1" for name in self.columns)
        return int(bits, 2)

    def bit_of(self, column: str) -> int:
        """Return the bit of ``grouping_id`` for a column; the lowest one is 0."""
        return len(self.columns) - 1 - self.columns.index(column)

    def packed(self, key: pa.Schema) -> pa.Schema:
        """Return the columns of keys: the columns of rows, nullable where not all sets have them, and the id.

        Args:
            key: the columns of rows.
        """
        columns = [field if field.name in self.common else field.with_nullable(True) for field in key]
        return pa.schema([*columns, pa.field(GROUPING_ID, pa.int64(), nullable=False)])

    def keys(self, columns: pa.Table) -> Iterator[Any]:
        """Yield the keys of rows for one set after the other, each a struct array.

        Args:
            columns: the columns of the rows.
        """
        key = list(self.packed(columns.schema))
        whole: list[Any] = [column.combine_chunks() for column in columns.columns]
        for one in self.sets:
            named = zip(columns.column_names, whole, strict=True)
            arrays = [column if name in one else pa.nulls(len(column), column.type) for name, column in named]
            ids: Any = pa.array(np.full(columns.num_rows, self.id_of(one), np.int64))
            yield pa.StructArray.from_arrays([*arrays, ids], fields=key)

    def _named(self, one: frozenset[str]) -> list[str]:
        return [name for name in self.columns if name in one]


By: TypeAlias = str | GroupingSets | Sequence[str | GroupingSets]
"""The columns by which rows are grouped, or several sets of them."""


def cube(*columns: str) -> GroupingSets:
    """Return all sets of some columns, as ``CUBE`` of SQL and ``DataFrame.cube`` have them.

    Args:
        columns: their names, at most 12.

    Raises:
        ConfigurationError: there are none, or more, or one is there twice.

    >>> cube("region", "product")
    grouping_sets([['region', 'product'], ['region'], ['product'], []])
    """
    names = _names("cube", columns)
    if 2 ** len(names) > MOST_SETS:
        raise _too_many(2 ** len(names))
    sizes = range(len(names) + 1)
    return GroupingSets(names, tuple(frozenset(one) for size in sizes for one in combinations(names, size)))


def rollup(*columns: str) -> GroupingSets:
    """Return sets of all columns, all but the last, and so on to none, as ``ROLLUP`` and ``DataFrame.rollup`` do.

    Args:
        columns: their names, from the widest to the narrowest, such as country, region and town.

    Raises:
        ConfigurationError: there are none, too many, or one is there twice.

    >>> rollup("region", "product")
    grouping_sets([['region', 'product'], ['region'], []])
    """
    names = _names("rollup", columns)
    return GroupingSets(names, tuple(frozenset(names[:size]) for size in range(len(names) + 1)))


def grouping_sets(sets: Sequence[str | Sequence[str]]) -> GroupingSets:
    """Return sets of columns, as ``GROUPING SETS`` and ``DataFrame.groupingSets`` have them.

    Args:
        sets: each a list of names, one name, or ``[]`` for all rows.

    Raises:
        ConfigurationError: something is no list of different names, there is no column, or a set is there twice.

    >>> grouping_sets([["region", "product"], "region", []])
    grouping_sets([['region', 'product'], ['region'], []])
    """
    given = [(one,) if isinstance(one, str) else one for one in sets] if isinstance(sets, list | tuple) else None
    if given is None or not all(isinstance(one, list | tuple) and _are_names(one) for one in given):
        raise InvalidArgumentError(
            f"grouping_sets was given {sets!r}; give a list of lists of different names, such as "
            "grouping_sets([['region', 'product'], ['region'], []])"
        )
    columns = tuple(dict.fromkeys(name for one in given for name in one))
    return GroupingSets(columns, tuple(map(frozenset, given)))


def product_of(by: Sequence[str | GroupingSets]) -> GroupingSets:
    """Return the product of names and grouping sets, as in SQL: each set with each of the others.

    Raises:
        ConfigurationError: a column is there twice, or the sets are too many.
    """
    parts = [GroupingSets((one,), (frozenset([one]),)) if isinstance(one, str) else one for one in by]
    count = int(np.prod([len(one.sets) for one in parts], dtype=object))
    if count > MOST_SETS:
        raise _too_many(count)
    sets = (frozenset[str]().union(*some) for some in product(*(one.sets for one in parts)))
    return GroupingSets(tuple(name for one in parts for name in one.columns), tuple(sets))


def _names(what: str, columns: Sequence[Any]) -> tuple[str, ...]:
    if not columns or not _are_names(columns):
        raise InvalidArgumentError(
            f"{what} was given {', '.join(map(repr, columns)) or 'nothing'}; give different names of columns, such as "
            f"{what}('region', 'product')"
        )
    return tuple(columns)


def _are_names(columns: Sequence[Any]) -> bool:
    return all(isinstance(name, str) for name in columns) and len(set(columns)) == len(columns)


def _too_many(count: int) -> ConfigurationError:
    return InvalidArgumentError(
        f"there are {count:,} grouping sets, and each row is as many rows; give at most {MOST_SETS:,}, such as those "
        "that are looked at: grouping_sets([['region', 'product'], ['region'], []])"
    )
