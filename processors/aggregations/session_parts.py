"""Parts of sessions: aggregates of records of one key that are no further apart than the gap, made before they travel.

Rule of this module: it knows what such parts are made of, and how they say when they begin. They end with their times.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from millpond.processors.aggregations.column_fold import Groups
from millpond.processors.aggregations.window_fold import Integers
from millpond.processors.runtime.order.time_order import stable_order
from millpond.stores.encoding.rows.row_columns import PhysicalRowType

_START = pa.field("start", pa.int64())


def in_sessions(groups: Groups, times: Integers, gap: int) -> Groups:
    """Group records by key, and apart where the next one of the key is further away than the gap.

    Args:
        groups: the records by key.
        times: the records' times.
        gap: the greatest distance between two records of one session.
    """
    in_order = (times[1:] >= times[:-1]).all()
    order = stable_order(groups.numbers) if in_order else np.lexsort((times, groups.numbers))
    keys, sorted_times = groups.numbers[order], times[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (keys[1:] != keys[:-1]) | (sorted_times[1:] - sorted_times[:-1] > gap)
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(begins) - 1
    return Groups(groups.keys.take(pa.array(keys[begins])), numbers)


def with_starts(states: Any, starts: Integers) -> Any:
    """Return structs of states with the times at which their parts of sessions begin."""
    fields = [*states.type, _START]
    return pa.StructArray.from_arrays([*states.flatten(), pa.array(starts)], fields=fields)


def starting_states(states: pa.StructType) -> pa.StructType:
    """Return the type of such structs."""
    return pa.struct([*states, _START])


def parted(values: Any) -> tuple[Any, Integers]:
    """Return the states, and the times at which their parts of sessions begin."""
    *states, starts = values.storage.flatten()
    fields = list(values.storage.type)[:-1]
    return PhysicalRowType.of(pa.StructArray.from_arrays(states, fields=fields)), starts.to_numpy()
