"""``RowCombiner``: aggregates rows before they travel to the tasks that aggregate them by key.

Rule of this module: what is combined gives the results that the rows give, whatever their order; where it might not,
nothing is combined. Arrow's grouped aggregates make the states; functions of different values fold those that Arrow
finds to be different. So sums of floats, which Arrow does not know exactly, and functions that go by the order of rows
are left out, and whatever may hold a value that a row must be refused for.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.batches.partials import Combiner
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.functions.function import AggregateFunction
from millpond.processors.verbs.verb import flattened
from millpond.stores.encoding.rows.physical import to_physical
from millpond.stores.encoding.serdes import Serde

pc: Any = _compute

_SUM_LIMIT: Final = 1 << 63


class Applied(NamedTuple):
    """A function of the rows of each key.

    Attributes:
        name: what it is called.
        function: what it does.
        place: of its column among those that rows have; None if rows are counted.
    """

    name: str
    function: AggregateFunction
    place: int | None


@dataclass(frozen=True)
class RowCombiner(Combiner):
    """Makes states of the rows of each key.

    Attributes:
        functions: in the order of the states.
        value_serde: of the states.
        since: the time from which all functions count rows, in microseconds since 1970; None if they count all.
    """

    # Merging states takes objects, folding rows does not: with five rows a key combining lost, with fifty it won.
    most_new: ClassVar[float] = 0.01

    functions: Sequence[Applied]
    value_serde: Serde[Any]
    since: int | None = None

    def keys(self, records: pa.Table) -> pa.Table | None:
        columns = flattened(records["key"]).columns
        return _numbered("k", columns) if all(_is_exact(column.type) for column in columns) else None

    def combine(self, records: pa.Table) -> pa.Table | None:
        if self.since is not None and pc.min(records["timestamp"]).as_py() < self.since:
            return None
        values = flattened(records["value"]).columns
        used = [(one.name, one.place) for one in self.functions if one.place is not None]
        if not all(_can_be_added(values[place]) for name, place in used if name in ("sum", "avg")):
            return None
        keys = _numbered("k", flattened(records["key"]).columns)
        columns = _numbered("v", [_PREPARED[name](values[place]) for name, place in used])
        names = [*keys.column_names, *columns.column_names, "t"]
        table = pa.table([*keys.columns, *columns.columns, records["timestamp"]], names)
        wanted: list[Any] = [(f"v{place}", of) for name, place in used for of in _NEEDS[name]]
        grouped = table.group_by(keys.column_names, use_threads=False).aggregate(
            [([], "count_all"), ("t", "max"), *wanted]
        )
        parts: list[Any] = [grouped[name].combine_chunks() for name in keys.column_names]
        key_type: Any = records.schema.field("key").type
        key = pa.StructArray.from_arrays(parts, fields=list(key_type))
        states = pa.array(list(map(self.value_serde.serialize, self._states(grouped))), pa.binary())
        return pa.table([key, states, grouped["t_max"]], ["key", "value", "timestamp"])

    def _states(self, grouped: pa.Table) -> Iterable[list[Any]]:
        """The states of each group."""
        found = {name: to_physical(grouped[name]) for name in grouped.column_names if name[0] in "cv"}
        return map(list, zip(*(_states_of(one, found) for one in self.functions), strict=True))


def combiner_of_rows(
    calls: Mapping[str, AggregateCall],
    functions: Sequence[AggregateFunction],
    types: Mapping[str, pa.DataType],
    state_serde: Serde[Any],
    since: int | None,
) -> RowCombiner | None:
    """What combines rows for these calls; None if one of them has to see each row.

    Args:
        calls: by the name of the result.
        functions: of the calls, bound to the types.
        types: of the values that rows bring for them, by the same names; of calls without one, null.
        state_serde: of the states.
        since: the time from which all functions count rows, in microseconds since 1970; None if they count all.
    """
    if not all(_combines(call.function, types[name]) for name, call in calls.items()):
        return None
    places = iter(range(len(calls)))
    applied = [
        Applied(call.function, function, next(places) if call.takes_values else None)
        for call, function in zip(calls.values(), functions, strict=True)
    ]
    return RowCombiner(applied, state_serde, since)


def _combines(function: str, type_: pa.DataType) -> bool:
    """Whether the states of a function of such a column can be made of what Arrow finds."""
    if function in _OF_DIFFERENT:
        return _is_exact(type_) or pa.types.is_floating(type_)
    if function == "avg":
        return pa.types.is_integer(type_)
    numbers = pa.types.is_integer(type_) or pa.types.is_duration(type_)
    if function == "sum":
        return numbers
    if function == "count" and pa.types.is_null(type_):
        return True
    return function in _PREPARED and (numbers or pa.types.is_timestamp(type_) or pa.types.is_date32(type_))


def _is_exact(type_: pa.DataType) -> bool:
    """Whether Arrow takes keys of a type for equal only if their bytes are."""
    numbers = pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_temporal(type_)
    return numbers or pa.types.is_string(type_) or pa.types.is_binary(type_)


def _can_be_added(column: Any) -> bool:
    """Whether no sum of some of the values leaves 64 bits."""
    bounds = pc.min_max(_numbers(column)).as_py()
    return bool(len(column) * max(abs(bounds["min"] or 0), abs(bounds["max"] or 0)) < _SUM_LIMIT)


def _numbers(column: Any) -> Any:
    return column.cast(pa.int64())


def _comparable(column: Any) -> Any:
    """Lengths of time as numbers, because Arrow does not compare those of groups."""
    return _numbers(column) if pa.types.is_duration(column.type) else column


def _presence(column: Any) -> Any:
    """1 where there is a value, else 0."""
    return _numbers(pc.is_valid(column))


def _as_it_is(column: Any) -> Any:
    return column


_OF_DIFFERENT: Final = ("approx_count_distinct", "count_distinct")
"""The functions for which it makes no difference how often a value comes."""

_PREPARED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "approx_count_distinct": _as_it_is,
    "avg": _numbers,
    "count": _presence,
    "count_distinct": _as_it_is,
    "max": _comparable,
    "min": _comparable,
    "sum": _numbers,
}
"""What becomes of a function's column first."""

_NEEDS: Final[Mapping[str, Sequence[str]]] = {
    "approx_count_distinct": ("distinct",),
    "avg": ("count", "sum"),
    "count": ("sum",),
    "count_distinct": ("distinct",),
    "max": ("max",),
    "min": ("min",),
    "sum": ("sum",),
}
"""The grouped aggregates of that which a function's states are made of."""


def _states_of(applied: Applied, found: Mapping[str, list[Any]]) -> Sequence[Any]:
    """A function's state for each group, of the grouped aggregates by their names."""
    if applied.place is None:
        return found["count_all"]
    columns = [found[f"v{applied.place}_{of}"] for of in _NEEDS[applied.name]]
    if applied.name in _OF_DIFFERENT:
        return [_folded(applied.function, values) for values in columns[0]]
    if applied.name == "avg":
        return [[count, total] if count else None for count, total in zip(*columns, strict=True)]
    return columns[0]


def _folded(function: AggregateFunction, values: Sequence[Any]) -> Any:
    """The state of a function for which times make no difference."""
    state = function.initial
    for value in values:
        state = function.add(state, value, 0)
    return state


def _numbered(letter: str, columns: Sequence[Any]) -> pa.Table:
    """The columns under names that are neither the user's nor equal."""
    return pa.table(list(columns), [f"{letter}{place}" for place in range(len(columns))])
