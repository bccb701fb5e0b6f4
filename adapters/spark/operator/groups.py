"""A group of rows as Spark hands it to an operator: blobs come out of pandas, and tables go into it.

Rule of this module: it knows how Spark calls, and what a group is; what becomes of it is up to the operator.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pandas as pd
import pyarrow as pa

from millpond.adapters.spark.worker.attempt import Attempt
from millpond.adapters.spark.worker.worker import tune_worker
from millpond.metrics import Stopwatch
from millpond.processors.distribution.exchange import EXCHANGE_SCHEMA, Blob


class KeptValue(Protocol):
    """The value of a group in Spark's state; an update counts once Spark has committed the micro-batch."""

    def get(self) -> Any:
        """Return the value as the micro-batch finds it, a tuple; None if there is none."""

    def update(self, newValue: Any) -> None:
        """Hand another value to Spark."""


@dataclass(frozen=True)
class Group:
    """The input of a group in a micro-batch.

    Attributes:
        number: its key.
        blobs: what has arrived, in any order.
        wall_clock: the time of the micro-batch, in milliseconds; one that is run again has the same.
        kept: Spark's state of the group.
        attempt: to run it.
        watch: running since it began to arrive.
    """

    number: int
    blobs: list[Blob]
    wall_clock: int
    kept: KeptValue
    attempt: Attempt
    watch: Stopwatch = field(default_factory=Stopwatch)


class TablesOfGroups(Protocol):
    """An operator that puts out tables."""

    def tables(self, group: Group) -> Iterator[pa.Table]:
        """Yield the output of a group's tasks, with reports; at the end they have committed."""


class InPandas:
    """An operator as Spark calls it.

    Args:
        operator: what runs.
    """

    def __init__(self, operator: TablesOfGroups) -> None:
        self._operator = operator

    def handle(self, number: int, rows: Iterator[Any], manifest: Any, wall_clock: int) -> Iterator[pd.DataFrame]:
        """Yield the output of a group.

        Args:
            number: its key.
            rows: pandas DataFrames with the rows that have arrived for it.
            manifest: Spark's state of the group.
            wall_clock: the time of the micro-batch, in milliseconds.
        """
        tune_worker()
        watch = Stopwatch()
        group = Group(number, _arrived(number, rows), wall_clock, manifest, Attempt.here(), watch)
        yield from map(_in_pandas, self._operator.tables(group))


def _arrived(task: int, frames: Iterator[Any]) -> list[Blob]:
    """Return the blobs that a micro-batch brings to a task."""
    blobs = []
    for frame in frames:
        columns = (frame[name].tolist() for name in EXCHANGE_SCHEMA.names[1:])
        blobs += [Blob(task, *numbers) for numbers in zip(*columns, strict=True)]
    return blobs


def _in_pandas(table: pa.Table) -> pd.DataFrame:
    """Return the rows as Spark takes them: as Arrow columns, because integers with nulls must not become floats."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=_flat_dtype, maps_as_pydicts="strict")
    return frame


def _flat_dtype(type_: pa.DataType) -> pd.ArrowDtype | None:
    # Spark converts nested values one by one, and would take pandas' marker of a missing value for a value.
    return None if pa.types.is_nested(type_) else pd.ArrowDtype(type_)
