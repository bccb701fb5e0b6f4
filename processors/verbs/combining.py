"""``RowCombiner``: aggregates rows before they travel to the tasks that aggregate them by key.

Rule of this module: states give the same results as their rows, in any order; where they might not,
nothing is combined. So functions that go by the order of rows are left out, users' functions, and sketches except that
of different values; and rows whose sums may leave their type, or the exact range of floats.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.aggregations.column_fold import Groups
from millpond.processors.aggregations.session_parts import in_sessions, with_starts
from millpond.processors.options.placing import last_starts
from millpond.processors.options.windows import SessionWindows, TimeWindows
from millpond.processors.runtime.batches.partials import Combiner
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.functions.row_fold import RowFold
from millpond.processors.verbs.verb import Input
from millpond.stores.encoding.column_keys import pack_times
from millpond.stores.encoding.rows.row_columns import PackedRowType, PhysicalRowType
from millpond.stores.encoding.serdes import Serde

pc: Any = _compute

_MERGE_EXACTLY: Final = frozenset(
    (
        "approx_count_distinct",
        "avg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bool_and",
        "bool_or",
        "corr",
        "count",
        "count_distinct",
        "covar_pop",
        "covar_samp",
        "kurtosis",
        "max",
        "min",
        "mode",
        "percentile",
        "skewness",
        "stddev_pop",
        "stddev_samp",
        "sum",
        "var_pop",
        "var_samp",
        "weighted_avg",
    )
)
"""The functions whose states tell of the values alone, however these were parted."""

_LARGEST: Final = 1e290
"""A sum of floats this large is less than the distance of the greatest float to the next one, so no order overflows."""


MOST_LEFT: Final = 1 / 4
"""The greatest share of rows that may be left; beyond it, rows travel as they are."""


@dataclass(frozen=True)
class RowCombiner(Combiner):
    """Makes states of the rows of each key.

    Attributes:
        rows: packs rows.
        fold: makes states of them.
        value_serde: the serde of the states.
        floats: the places in packed rows of values that are summed as floats.
        windows: the windows, each row in one of them, and each state of one or of a part of one; None for none.
    """

    # With five rows a key combining lost, with fifty it won.
    most_new: ClassVar[float] = 0.01

    rows: Input
    fold: RowFold
    value_serde: Serde[Any]
    floats: Sequence[int] = ()
    windows: TimeWindows | SessionWindows | None = None

    @property
    def spares(self) -> bool:  # type: ignore[override]
        """True if rows may be late: only their task can tell, and reports them."""
        return self.windows is not None

    def keys(self, records: pa.Table) -> Any:
        keys = self.rows.keys_of(records)
        if not isinstance(self.windows, TimeWindows):
            return keys
        places = last_starts(self.windows, records["timestamp"].to_numpy())
        return pc.binary_join_element_wise(keys, pack_times(places), b"")

    def combine(self, records: pa.Table) -> pa.Table | None:
        rows = self.rows.packed(records).storage
        if not all(_is_bounded(rows.field(place)) for place in self.floats):
            return None
        times = records["timestamp"].to_numpy()
        groups = Groups(self.keys(records))
        if isinstance(self.windows, SessionWindows):
            groups = in_sessions(groups, times, self.windows.apart)
        if len(groups.keys) > MOST_LEFT * len(times):
            return None
        result: Any = self.fold.result
        nothing: Any = pa.nulls(len(groups.keys), result.storage_type)
        try:
            states = self.fold.totals(groups, PhysicalRowType.of(rows), PhysicalRowType.of(nothing)).storage
        except pa.ArrowInvalid:
            return None
        if isinstance(self.windows, SessionWindows):
            states = with_starts(states, groups.earliest(times))
        firsts: Any = pa.array(groups.first(np.arange(len(times))))
        keys = records["key"].combine_chunks().take(firsts)
        columns: list[Any] = [keys, PackedRowType.of(states), pa.array(groups.latest(times))]
        return pa.table(columns, ["key", "value", "timestamp"])


def merges_exactly(call: AggregateCall) -> bool:
    """Return whether the states of any parts of the rows, merged, are the state of them all."""
    return call.function in _MERGE_EXACTLY


def float_sums(
    calls: Mapping[str, AggregateCall], types: Mapping[str, pa.DataType], places: Sequence[int]
) -> Sequence[int]:
    """Return the places in rows of values that are summed as floats."""
    return [
        place
        for (name, call), place in zip(calls.items(), places, strict=True)
        if call.function in ("avg", "sum") and pa.types.is_floating(types[name])
    ]


def _is_bounded(column: Any) -> bool:
    """Return whether no sum of some of the floats is too large for every order of them to give the same."""
    numbers = np.abs(column.drop_null().to_numpy().astype(np.float64))
    return bool(numbers.max(initial=0.0) < _LARGEST / max(1, len(numbers)))
