"""The rows of an input on their way to workers, as flat columns.

Rule of this module: no value changes. Spark writes each row before Arrow reads it, and a struct in it with all that it
shares with others. So a struct that only Millpond asks for travels as its fields, each of them once, and workers put
the structs together, which copies nothing. Columns are numbered, so that no name of a user meets one of ours.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from millpond.adapters.spark.session.sent import ArrowFunction, in_workers
from millpond.processors.verbs.verb import microseconds, struct_of


class Moments(NamedTuple):
    """The column of that number, timestamps or dates, in microseconds since 1970."""

    number: int


Part: TypeAlias = "int | Moments | Mapping[str, int]"
"""A column that workers see: the number of a flat one, times, or the numbers of the fields of a struct."""


@dataclass(frozen=True)
class FlatRows:
    """Rows as flat columns, and what workers make of them.

    Attributes:
        frame: the flat columns.
        parts: the columns that workers see.
    """

    frame: DataFrame
    parts: Mapping[str, Part]

    @classmethod
    def of(cls, frame: DataFrame) -> Self:
        """Return rows whose columns stay as they are."""
        return cls(frame, {name: number for number, name in enumerate(frame.columns)})

    def in_workers(self, function: ArrowFunction, columns: str | T.StructType) -> DataFrame:
        """Return the rows that a function makes of the columns in workers."""
        return in_workers(self.frame, Assembling(self.parts, function), columns)

    def to_arrow(self) -> pa.Table:
        """Return the columns that workers see."""
        table = self.frame.toArrow()
        return pa.Table.from_batches([assembled(batch, self.parts) for batch in table.combine_chunks().to_batches()])


class FlatColumns:
    """Flat columns in the making, of which those with a name are there once."""

    def __init__(self) -> None:
        self._columns: list[Column] = []
        self._named: dict[str, int] = {}

    def number(self, column: Column, name: str | None = None) -> int:
        """Return the number of a column, which is that of an earlier one of the same name."""
        if name in self._named:
            return self._named[name]
        number = len(self._columns)
        self._columns.append(column.alias(f"column_{number}"))
        if name is not None:
            self._named[name] = number
        return number

    def rows(self, frame: DataFrame, parts: Mapping[str, Part]) -> FlatRows:
        """Return the rows of ``frame`` as these columns."""
        return FlatRows(frame.select(*self._columns), parts)


@dataclass(frozen=True)
class Assembling:
    """A function of ``mapInArrow`` that gets structs of flat columns. Travels to the workers.

    Attributes:
        parts: the columns that the function gets.
        function: what is called.
    """

    parts: Mapping[str, Part]
    function: ArrowFunction

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.function(assembled(batch, self.parts) for batch in batches)


def assembled(flat: pa.RecordBatch, parts: Mapping[str, Part]) -> pa.RecordBatch:
    """Return the columns that the parts of flat columns are."""
    return pa.RecordBatch.from_arrays([_part(flat, part) for part in parts.values()], names=list(parts))


def _part(flat: pa.RecordBatch, part: Part) -> Any:
    if isinstance(part, int):
        return flat.column(part)
    if isinstance(part, Moments):
        return microseconds(flat.column(part.number))
    return struct_of({name: flat.column(number) for name, number in part.items()}, flat.num_rows)
