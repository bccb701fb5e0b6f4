"""The order in which a task takes the records of several queues: by time, or as Kafka Streams picks them.

``Order.TIME`` is a stable sort of all records by their timestamps: among equals the queue named first wins, then the
one that came first in it. Where the later of two records of a key is the valid one whatever their timestamps, each
key's order is kept: a record that is older than one of its key before it comes right behind that.

``Order.ARRIVAL`` always takes the next record from the queue whose first waiting record has the smallest timestamp.
This is a stable sort by the largest timestamp that a queue has shown so far, so a queue's out-of-order records follow
the record they are late for.

Of ties, records of one input with the same key and time, the values decide where they are told to: none (a delete)
comes first, then the smaller one as its bytes or numbers compare. So of rows that say different things of the same
moment, the greatest counts last, however a micro-batch was packed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import NoneType
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.options.order import Order
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns, Records

pc: Any = _compute

_Input = TypeVar("_Input")
_Run = TypeVar("_Run", Batch, Columns, Records)
_Integers: TypeAlias = npt.NDArray[np.int64]

_LOW: Final = (1 << 16) - 1
_LARGEST: Final = np.iinfo(np.int64).max

Regroup: TypeAlias = Callable[
    [Sequence[_Input], npt.NDArray[np.intp], npt.NDArray[np.int64], Callable[[], npt.NDArray[np.int64]]],
    npt.NDArray[np.int64] | None,
]
"""Gives inputs longer runs where that changes nothing; see ``LookupOrder.regroup``."""


def merge(
    inputs: Mapping[str, _Run],
    order: Order = Order.ARRIVAL,
    keep_order: Collection[str] = (),
    regroup: Regroup[str] | None = None,
) -> Iterator[tuple[str, _Run]]:
    """Yield the records of several topics in processing order, as runs of consecutive records of one topic.

    Args:
        inputs: by topic, the waiting records of one partition in arrival order; the mapping's order decides ties.
        order: the order.
        keep_order: topics whose records keep the order of each key even in the order of time.
        regroup: makes runs longer; they then have positions.

    Yields:
        Topic and records; no run is empty, and neighboring runs are of different topics.

    >>> from millpond.processors import Batch
    >>> trades = Batch(["a", "a", "a"], [1, 2, 3], [10, 5, 40])
    >>> quotes = Batch(["a", "a"], [100, 101], [20, 30])
    >>> [(topic, run.timestamps) for topic, run in merge({"trades": trades, "quotes": quotes})]
    [('trades', [10, 5]), ('quotes', [20, 30]), ('trades', [40])]
    """
    waiting = [(topic, run) for topic, run in inputs.items() if len(run)]
    queues = [np.asarray(run.timestamps, np.int64) for _, run in waiting]
    go_by = [
        reached_by_key(times, _numbers_of_keys([one])) if one[0] in keep_order and order is Order.TIME else times
        for one, times in zip(waiting, queues, strict=True)
    ]
    places = places_taken(go_by, order)
    if len(waiting) < 2:
        yield from waiting if places is None else [(topic, run.taken(places)) for topic, run in waiting]
        return
    if places is None:
        places = np.arange(sum(map(len, queues)))
    owners = owners_of(places, [len(run) for _, run in waiting])
    positions = None
    if regroup is not None:
        topics, times = [topic for topic, _ in waiting], np.concatenate(queues)[places]
        positions = regroup(topics, owners, times, lambda: _numbers_of_keys(waiting)[places])
        if positions is not None:
            places, owners = places[positions], owners[positions]
    yield from _taken(waiting, places, owners, positions)


def _taken(
    waiting: Sequence[tuple[str, _Run]],
    places: npt.NDArray[np.int64],
    owners: npt.NDArray[np.intp],
    positions: npt.NDArray[np.int64] | None,
) -> Iterator[tuple[str, _Run]]:
    """Yield runs: their records, laid end to end, in their queues, and the positions that they get, if any."""
    starts = list(accumulate((len(run) for _, run in waiting), initial=0))
    at = 0
    for i, count in runs_of(owners):
        topic, run = waiting[i]
        part = slice(at, at + count)
        at += count
        taken = part_of(run, places[part] - starts[i])
        yield topic, taken if positions is None else taken.at(positions[part])


def part_of(run: _Run, places: npt.NDArray[np.int64]) -> _Run:
    """Return the records at some places; a slice where these follow each other."""
    first, size = int(places[0]), len(places)
    if (places == np.arange(first, first + size)).all():
        return run if size == len(run) else run.slice(first, first + size)
    return run.taken(places)


def places_taken(queues: Sequence[npt.NDArray[np.int64]], order: Order) -> npt.NDArray[np.int64] | None:
    """Return the order in which the records of several queues are taken, as positions in the queues laid end to end.

    Args:
        queues: the timestamps of each queue's records in arrival order; the queues' order decides ties.
        order: the order.

    Returns:
        None if they lie in this order.

    >>> places_taken([np.array([10, 5, 40]), np.array([20, 30])], Order.TIME).tolist()
    [1, 0, 3, 4, 2]
    >>> places_taken([np.array([10, 10]), np.array([20, 30])], Order.TIME)
    """
    if order is Order.ARRIVAL:
        return merge_order(queues) if len(queues) > 1 else None
    times = np.concatenate(queues) if queues else np.empty(0, np.int64)
    return None if (times[1:] >= times[:-1]).all() else times.argsort(kind="stable")


def _numbers_of_keys(runs: Iterable[tuple[str, Records]]) -> npt.NDArray[np.int64]:
    """Return a number for each key; one for all if some are not text, bytes or integers, and so may be equal."""
    keys = [key for _, run in runs for key in (run.keys.to_pylist() if isinstance(run, Columns) else run.keys)]
    if not set(map(type, keys)) <= {str, bytes, int, NoneType}:
        return np.zeros(len(keys), np.int64)
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.fromiter(map(numbers.__getitem__, keys), np.int64, len(keys))


def merge_order(queues: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Return the order in which the records of several queues are taken, as positions in the queues laid end to end.

    Args:
        queues: the timestamps of each queue's records in arrival order; the queues' order decides ties.

    >>> merge_order([np.array([10, 5, 40]), np.array([20, 30])]).tolist()
    [0, 1, 3, 4, 2]
    """
    reached = np.concatenate([np.maximum.accumulate(times) for times in queues])
    return reached.argsort(kind="stable")


def reached_by_key(times: npt.NDArray[np.int64], keys: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Return the largest timestamp that each record's key has shown so far.

    Args:
        times: the timestamps, in arrival order.
        keys: a small number for each record that tells its key.

    >>> reached_by_key(np.array([20, 5, 10, 30]), np.array([0, 1, 0, 1])).tolist()
    [20, 5, 20, 30]
    """
    if not len(times):
        return times
    ranks, values = _ranks(times, int(keys.max()) + 1)
    order = stable_order(keys)
    # With its key's number in front, no rank is carried over from one key to the next.
    base = keys[order].astype(np.int64) * (int(ranks.max()) + 1)
    reached = np.empty_like(times)
    reached[order] = values(np.maximum.accumulate(base + ranks[order]) - base)
    return reached


def _ranks(times: _Integers, keys: int) -> tuple[_Integers, Callable[[_Integers], _Integers]]:
    """Return small numbers in the order of times, for so many keys beside each other, and a function back to times."""
    earliest = int(times.min())
    if (int(times.max()) - earliest + 1) * keys <= _LARGEST:
        return times - earliest, lambda ranks: ranks + earliest
    distinct, ranks = np.unique(times, return_inverse=True)
    return ranks, distinct.__getitem__


def stable_order(numbers: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.intp]:
    """Return the positions of numbers that are not negative, sorted by these; equal ones as they come.

    >>> stable_order(np.array([7, 1 << 20, 7, 0])).tolist()
    [3, 0, 2, 1]
    """
    largest = int(numbers.max(initial=0))
    if largest >= 1 << 32:
        return numbers.argsort(kind="stable")
    # NumPy sorts numbers of 16 bits by their digits, which is many times faster.
    order = (numbers & _LOW).astype(np.uint16).argsort(kind="stable")
    if largest > _LOW:
        order = order[(numbers[order] >> 16).astype(np.uint16).argsort(kind="stable")]
    return order


def owners_of(order: npt.NDArray[np.int64], sizes: Sequence[int]) -> npt.NDArray[np.intp]:
    """Return the queue that each position in ``order`` lies in, for queues of ``sizes`` laid end to end.

    >>> owners_of(np.array([0, 1, 3, 4, 2]), [3, 2]).tolist()
    [0, 0, 1, 1, 0]
    """
    return np.arange(len(sizes)).repeat(sizes)[order]


def runs_of(owners: npt.NDArray[np.intp]) -> Iterator[tuple[int, int]]:
    """Yield each run of equal owners: the owner and the run's length.

    >>> list(runs_of(np.array([0, 0, 1, 1, 0])))
    [(0, 2), (1, 2), (0, 1)]
    """
    starts = [0, *((owners[1:] != owners[:-1]).nonzero()[0] + 1).tolist()]
    ends = [*starts[1:], len(owners)]
    for owner, start, end in zip(owners[starts].tolist(), starts, ends, strict=True):
        yield owner, end - start


def without_ties(rows: _Integers, times: _Integers, keys: Callable[[], _Integers], values: Any) -> _Integers:
    """Return the rows of one input, with rows of one key and time in the order of their values.

    Args:
        rows: the places of the rows, in the order of time.
        times: the times, in the same order.
        keys: returns, by place, a number that tells the row's key.
        values: an Arrow array or chunked array of the values by place.

    >>> values = pa.array([b"b", b"a", None])
    >>> without_ties(np.array([0, 1, 2]), np.array([5, 5, 5]), lambda: np.array([7, 7, 7]), values).tolist()
    [2, 1, 0]
    """
    if not (times[1:] == times[:-1]).any():
        return rows
    numbers = keys()[rows]
    order = stable_order(numbers)
    numbers, times = numbers[order], times[order]
    same = (numbers[1:] == numbers[:-1]) & (times[1:] == times[:-1])
    if not same.any():
        return rows
    # Of rows by key and time, those that have a neighbor of the same; each group of them keeps its places.
    tied = np.concatenate([same, [False]]) | np.concatenate([[False], same])
    groups = np.concatenate([[0], np.cumsum(~same)])[tied]
    members = order[tied]
    chosen: Any = pa.array(rows[members])
    comparable = _comparable(values.take(chosen))
    table = pa.table({"group": groups, "is": comparable.is_valid().cast(pa.int8()), "value": comparable})
    by_value = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])
    settled = rows.copy()
    settled[members] = rows[members[by_value.to_numpy()]]
    return settled


def _comparable(values: Any) -> Any:
    """Return the values in a form that Arrow can sort: rows that travel as columns become their bytes as objects."""
    type_ = values.type
    if pa.types.is_primitive(type_) or pa.types.is_binary(type_) or pa.types.is_string(type_):
        return values
    listed = values.to_pylist()
    if all(one is None or isinstance(one, bytes) for one in listed):
        return pa.array(listed, pa.binary())
    return pa.array([None if one is None else repr(one) for one in listed], pa.string())
