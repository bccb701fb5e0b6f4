"""Rows that are played through a verb as they arrived, to measure the cost of some graces.

Rule of this module: the verb itself says what is late for it; nothing of it is calculated here. The results are
compared with those of the same verb for all rows at once, none of which is late.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import ArgumentConflictError, ColumnTypeError, InvalidTimeError
from millpond.processors.calls.arguments import in_micros
from millpond.processors.calls.reports.grace_advice import (
    GraceAdvice,
    GraceLine,
    lateness_of,
    proposed_graces,
    share_of,
)
from millpond.processors.pond.frames import field_of
from millpond.processors.pond.micro_batches import MicroBatches
from millpond.processors.verbs.projections import CHANGE_TIME, OP, SEQUENCE
from millpond.stores.encoding.times import Duration

pc: Any = _compute

_LOOKS: Final = 64
"""The greatest number of looks at the size of the state while rows are played."""

MakeVerb = Callable[[timedelta], MicroBatches]
"""Makes the verb with a grace."""


@dataclass(frozen=True)
class Recording:
    """Rows as they arrived.

    Attributes:
        rows: by input.
        batches: by input, the number of the micro-batch of each row.
    """

    rows: Mapping[str, pa.Table]
    batches: Mapping[str, Any]

    @classmethod
    def of(cls, tables: Mapping[str, pa.Table], arrived: str, every: Duration) -> "Recording":
        """Return the rows, cut into micro-batches by the times at which they arrived.

        Args:
            tables: by input, as they came.
            arrived: the column with the times at which they came.
            every: the length of a micro-batch.

        Raises:
            ConfigurationError: there is no such column, or it has no times, or misses some.
        """
        length = in_micros(every, "every")
        if length < 1:
            raise InvalidTimeError(f"every is {every!r}; give how often a micro-batch begins, such as '10 seconds'")
        return cls(tables, {role: _moments(role, table, arrived) // length for role, table in tables.items()})

    def __len__(self) -> int:
        return sum(table.num_rows for table in self.rows.values())

    @property
    def micro_batches(self) -> Iterator[dict[str, pa.Table]]:
        """The rows that arrive with each micro-batch, in order."""
        numbers = np.unique(np.concatenate(list(self.batches.values())))
        for number in numbers:
            yield {role: table.filter(pa.array(self.batches[role] == number)) for role, table in self.rows.items()}

    def without(self, columns: Mapping[str, Sequence[str]]) -> "Recording":
        """Return the same rows with these columns alone, by input."""
        rows = {role: table.select([name for name in columns[role] if name in table.column_names])
                for role, table in self.rows.items()}  # fmt: skip
        return Recording(rows, self.batches)


def advise_grace(make: MakeVerb, recording: Recording, graces: Sequence[Duration] | None) -> GraceAdvice:
    """Return the costs of graces for a verb.

    Args:
        make: makes the verb with a grace.
        recording: the rows.
        graces: the graces to try; None for those that the rows propose.

    Raises:
        ConfigurationError: the verb has other inputs, or a grace is no length of time.
        RecordError: a row cannot be used.
    """
    with make(timedelta()) as verb:
        columns = {role: schema.names for role, schema in verb.inputs.items()}
        times, name = verb.times, verb.name
    others = sorted(columns.keys() ^ recording.rows.keys())
    if others:
        raise ArgumentConflictError(
            f"the verb {name!r} reads {' and '.join(columns)}, but rows were given for "
            f"{' and '.join(recording.rows)}; give rows=..., left=... and right=... of a join, or tables=... of a "
            "multi_join"
        )
    played = recording.without(columns)
    tried = [timedelta(microseconds=in_micros(grace, "a grace")) for grace in graces or ()]
    if graces is None:
        tried = proposed_graces(lateness_of([_timed(played, role, times[role]) for role in columns]))
    truth = _all_at_once(make(max(tried, default=timedelta())), played)
    lines = [_played(make(grace), played, truth, grace) for grace in sorted(set(tried))]
    return GraceAdvice(name, len(recording), tuple(lines))


def _played(verb: MicroBatches, recording: Recording, truth: Counter[Any], grace: timedelta) -> GraceLine:
    """Return the cost of one grace."""
    results: list[pa.Table] = []
    rows = size = 0
    with verb:
        batches = list(recording.micro_batches)
        each = -(-len(batches) // _LOOKS)
        for number, batch in enumerate(batches):
            results.append(_fed(verb, batch))
            if number % each == 0:
                now = verb.state_size
                rows, size = max(rows, now[0]), max(size, now[1])
        results.append(verb.complete())
        wrong = (truth - _last(verb, results)).total()
        share = share_of(verb.late_rows, len(recording))
        return GraceLine(grace, verb.late_rows, share, wrong, rows, size)


def _all_at_once(verb: MicroBatches, recording: Recording) -> Counter[Any]:
    """Return the results if all rows arrive together, so that none is late."""
    with verb:
        return _last(verb, [_fed(verb, recording.rows), verb.complete()])


def _fed(verb: MicroBatches, tables: Mapping[str, pa.Table]) -> pa.Table:
    return verb.feed(tables=tables)


def _last(verb: MicroBatches, results: Sequence[pa.Table]) -> Counter[Any]:
    """Return the rows that came out, with their numbers; of a change feed, the rows that are there in the end."""
    rows = [row for table in results for row in table.to_pylist()]
    if verb.key is not None:
        rows.sort(key=lambda row: row[SEQUENCE])
        last = {repr([row[name] for name in verb.key]): row for row in rows}
        rows = [row for row in last.values() if row[OP] != "delete"]
    left_out = {OP, SEQUENCE, CHANGE_TIME} if verb.key is not None else set()
    return Counter(repr([value for name, value in row.items() if name not in left_out]) for row in rows)


def _timed(recording: Recording, role: str, time: str) -> tuple[Any, Any]:
    """Return the times of the rows of an input that have one, with the numbers of their micro-batches."""
    found = recording.rows[role][time].combine_chunks()
    there = found.is_valid().to_numpy(zero_copy_only=False)
    return _micros(found.drop_null()), recording.batches[role][there]


def _moments(role: str, table: pa.Table, arrived: str) -> Any:
    """Return the times at which rows arrived, in microseconds.

    Raises:
        ConfigurationError: there is no such column, or it has no times, or misses some.
    """
    type_ = field_of(role, table.schema, arrived).type
    column: Any = table[arrived].combine_chunks()
    if not pa.types.is_timestamp(type_) or column.null_count:
        raise ColumnTypeError(
            f"arrived is {arrived!r}, a column of {role!r} of type {type_} with {column.null_count} nulls; give one of "
            "timestamps, which says of each row when it came"
        )
    return _micros(column)


def _micros(column: Any) -> Any:
    """Return times, or dates, in microseconds."""
    return column.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy(zero_copy_only=False)
