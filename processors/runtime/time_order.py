"""The order in which a task takes the records of several topics: as Kafka Streams picks them.

Rule: the next record is always taken from the topic whose first waiting record has the smallest timestamp; among equals
the topic named first wins, and no topic's own order changes. That is a stable sort of all records by the largest
timestamp that their topic has shown so far, so a topic's out-of-order records follow the record they are late for.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from itertools import accumulate

from millpond.processors.runtime.batch import Batch


def merge(inputs: Mapping[str, Batch]) -> Iterator[tuple[str, Batch]]:
    """The records of several topics in processing order, as runs of consecutive records of one topic.

    Args:
        inputs: by topic, the waiting records of one partition in arrival order; the mapping's order decides ties.

    Yields:
        Topic and records; no run is empty, and neighbouring runs are of different topics.

    >>> trades = Batch(["a", "a", "a"], [1, 2, 3], [10, 5, 40])
    >>> quotes = Batch(["a", "a"], [100, 101], [20, 30])
    >>> [(topic, run.timestamps) for topic, run in merge({"trades": trades, "quotes": quotes})]
    [('trades', [10, 5]), ('quotes', [20, 30]), ('trades', [40])]
    """
    waiting = [(topic, batch) for topic, batch in inputs.items() if len(batch)]
    if len(waiting) < 2:
        yield from waiting
        return
    reached = [list(accumulate(batch.timestamps, max)) for _, batch in waiting]
    taken = [0] * len(waiting)
    heads = [(times[0], i) for i, times in enumerate(reached)]
    heapify(heads)
    while heads:
        i = heads[0][1]
        topic, batch = waiting[i]
        start, stop = taken[i], _run_end(reached[i], taken[i], i, heads)
        taken[i] = stop
        if stop < len(batch):
            heapreplace(heads, (reached[i][stop], i))
        else:
            heappop(heads)
        yield topic, batch if stop - start == len(batch) else batch.slice(start, stop)


def _run_end(reached: list[int], start: int, i: int, heads: list[tuple[int, int]]) -> int:
    """Where the run of input ``i``, whose turn it is, ends: before the first record that another input precedes."""
    if len(heads) == 1:
        return len(reached)
    rival_time, rival = min(heads[1:3])
    find = bisect_left if rival < i else bisect_right
    return find(reached, rival_time, start)
