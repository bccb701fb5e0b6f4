"""Longer runs: inputs that meet only in the state of single keys need not alternate.

The records of a micro-batch are processed in the order of time, so inputs alternate every few records, and a short run
costs almost as much as a long one. But where a table is joined with a stream or another table, only the records of the
same key tell whether one came before another. So a part of the micro-batch is taken in waves, with the position of
each record, and behind the operators for which that makes no difference, gates restore the order. The answers are the
same, record for record.

What concerns different keys commutes. So only inputs that meet in the state of a key must alternate, and only for that
key: a wave takes, of each key, the records up to the next one that must come after another input's. Within a wave the
inputs follow each other, each as one run.

What keys share is time: a store with a history forgets by it, and refuses what is late. Where that might make a
difference, fewer records are put in a new order together, so that they span less time than a history does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from millpond.processors.runtime.nodes import SourceNode
from millpond.processors.runtime.order.graph_order import gathering_nodes
from millpond.processors.runtime.order.keyed_region import Edge, KeyedRegion
from millpond.processors.runtime.order.time_order import reached_by_key, stable_order
from millpond.processors.runtime.promises import Promises
from millpond.processors.runtime.subtopology import Subtopology
from millpond.stores.encoding.serdes import PLAIN_KEYS, serde

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_NEVER: Final = np.iinfo(np.int64).min

SECTION: Final = 1 << 16
"""The records that are put in a new order at a time, so that not all results of a micro-batch are held back."""

SHORTEST: Final = 32
"""The least number of them: in a shorter section, there would be nothing to gain."""


def returns(first: Booleans, second: Booleans, keys: Integers, late: Booleans | None = None) -> Booleans:
    """Return where a wave must end for a key, since an input would come too early in it.

    Args:
        first, second: the records of two inputs; the first goes first in a wave.
        keys: a number for each record that tells its key.
        late: the records of the first input that must not come before an earlier record of the second; None for all.

    >>> first = np.array([True, False, True, False, True])
    >>> returns(first, ~first, np.array([0, 0, 0, 1, 0])).tolist()
    [False, False, True, False, False]
    """
    found = np.zeros(len(keys), np.bool_)
    rows = (second | (first if late is None else first & late)).nonzero()[0]
    rows = rows[stable_order(keys[rows])]
    after, before = rows[1:], rows[:-1]
    found[after] = first[after] & second[before] & (keys[after] == keys[before])
    return found


def seen_too_early(writes: Booleans, reads: Booleans, keys: Integers, times: Integers) -> Booleans:
    """Return the writes that an earlier lookup of their key, as of its own time, would have found had it come later.

    Args:
        writes, reads: the records of two inputs.
        keys: a number for each record that tells its key.
        times: their timestamps.
    """
    found = np.zeros(len(keys), np.bool_)
    rows = (writes | reads).nonzero()[0]
    never = max(int(times.min(initial=0)) - 1, _NEVER)
    reached = reached_by_key(np.where(reads[rows], times[rows], never), keys[rows])
    found[rows] = writes[rows] & (reached >= times[rows])
    return found


def wave_order(ends: Booleans, keys: Integers, ranks: Integers) -> Integers:
    """Return the records wave by wave, in each wave input by input.

    Args:
        ends: a mask of the records at which a wave ends for a key, and the next begins.
        keys: a number for each record that tells its key.
        ranks: the place of each record's input in a wave.

    Returns:
        The positions of the records.

    >>> ranks, keys = np.array([0, 1, 0, 1, 0]), np.array([0, 0, 0, 1, 0])
    >>> wave_order(np.array([False, False, True, False, False]), keys, ranks).tolist()
    [0, 1, 3, 2, 4]
    """
    order = stable_order(keys)
    counted = ends[order].cumsum()
    begins = np.flatnonzero(np.diff(keys[order], prepend=-1))
    before = counted[begins] - ends[order][begins]
    waves = np.empty(len(keys), np.int64)
    waves[order] = counted - before.repeat(np.diff(begins, append=len(keys)))
    return stable_order(waves * (int(ranks.max()) + 1) + ranks)


class _Arrived(NamedTuple):
    """Records in the order of processing.

    Attributes:
        inputs: for each topic, a mask of its records.
        ranks: for each record, the place of its topic in a wave.
        times: their timestamps.
        keys: for each record, a number that tells its key.
    """

    inputs: Mapping[str, Booleans]
    ranks: Integers
    times: Integers
    keys: Integers

    def section(self, start: int, stop: int) -> "_Arrived":
        """Return the records between two positions."""
        part = slice(start, stop)
        inputs = {topic: records[part] for topic, records in self.inputs.items()}
        return _Arrived(inputs, self.ranks[part], self.times[part], self.keys[part])

    def of(self, topics: Sequence[str]) -> Booleans:
        """Return a mask of the records of these topics."""
        found = np.zeros(len(self.times), np.bool_)
        for topic in topics:
            found |= self.inputs.get(topic, False)
        return found


@dataclass(frozen=True)
class _Meeting:
    """Two inputs meet in the state of a key.

    Attributes:
        first, second: the topics, in their order within a wave.
        as_of: whether all that the second does with it is to look up, as of its own time, what the first puts.
    """

    first: str
    second: str
    as_of: bool

    def ends(self, records: Mapping[str, Booleans], keys: Integers, times: Integers) -> Booleans:
        """Return where a wave must end for a key; ``records`` has a mask of the records of each topic."""
        first, second = records[self.first], records[self.second]
        late = seen_too_early(first, second, keys, times) if self.as_of else None
        return returns(first, second, keys, late)


@dataclass(frozen=True)
class _History:
    """A store with a history, in which the order of keys is free.

    Attributes:
        store: its name.
        writers, readers: the topics whose records are put into it, and look it up.
        ahead: how much newer than the readers' records the versions that these look up may be.
        back: how much older than the readers' records the times may be as of which these look up.
    """

    store: str
    writers: Sequence[str]
    readers: Sequence[str]
    ahead: int
    back: int

    def newest(self, store: Any, arrived: _Arrived) -> Integers:
        """Return the latest time that the store, which is open, has been told of, after each of the records."""
        told = np.where(arrived.of(self.writers), arrived.times, _NEVER)
        observed = store.observed_stream_time
        return np.maximum(np.maximum.accumulate(told), _NEVER if observed is None else observed)

    def is_kept(self, store: Any, section: _Arrived, newest: int, order: Integers) -> bool:
        """Return whether nothing is refused or forgotten that would not have been in the order of positions.

        Nor is anything looked up before the store forgets that would have been put by then.

        Args:
            store: the store, which is open.
            section: the records that are put in a new order.
            newest: the latest time that the store has been told of after them.
            order: their positions in the section, in the order in which they are taken.
        """
        writes, reads = section.of(self.writers), section.of(self.readers)
        if not writes.any():
            return True
        if section.times[reads].min(initial=newest) < newest - store.history_retention + self.back:
            return False
        taken = max(newest - store.grace, _NEVER if store.horizon is None else store.horizon)
        if section.times[writes].min() >= taken + self.ahead:
            return True
        return bool((np.diff(order[writes[order]]) > 0).all())


@dataclass(frozen=True)
class LookupOrder:
    """The order in which the inputs of a task may be taken.

    Attributes:
        gates: the ways out of the region in which the order of keys is free; the ways in one list have one gate.
        ranks: the place of each topic in a wave.
        meetings: the inputs that must alternate for a key.
        histories: the stores that must not forget too early.
        plain_keys: whether equal keys are known by equal bytes.
    """

    gates: Sequence[Sequence[Edge]]
    ranks: Mapping[str, int]
    meetings: Sequence[_Meeting]
    histories: Sequence[_History]
    plain_keys: bool

    @classmethod
    def of(cls, part: Subtopology, promises: Mapping[str, Promises]) -> Self | None:
        """Return the order for the tasks of ``part``; None if their inputs have to alternate.

        Args:
            part: the sub-topology.
            promises: the promises of its operators, settled.
        """
        region = KeyedRegion(part, promises, gathering_nodes(part, promises))
        gates = region.gates()
        if gates is None:
            return None
        inputs = [_Input(part, promises, region, source) for source in part.sources.values()]
        ranks = _ranks(inputs)
        inputs.sort(key=lambda one: ranks[one.topic])
        meetings = [
            _Meeting(one.topic, other.topic, other.looks_up_as_of(one))
            for one, other in combinations(inputs, 2)
            if one.meets(other)
        ]
        histories = [
            _History(
                name,
                [one.topic for one in inputs if name in one.written],
                [one.topic for one in inputs if name in one.looked_up],
                max((one.looks_ahead for one in promises.values() if name in one.looks_up), default=0),
                max((one.looks_back for one in promises.values() if name in one.looks_up), default=0),
            )
            for name, spec in part.stores.items()
            if spec.history_retention is not None and any(name in one.written for one in inputs)
        ]
        keys = [node.consumed.key_serde for node in part.sources.values()]
        keys += [spec.key_serde for spec in part.stores.values()]
        plain = all(key is not None and serde(key) in PLAIN_KEYS for key in keys)
        return cls(gates, ranks, meetings, histories, plain)

    def regroup(
        self,
        stores: Mapping[str, Any],
        topics: Sequence[str],
        owners: npt.NDArray[np.intp],
        times: Integers,
        keys: Callable[[], Integers],
    ) -> Integers | None:
        """Return the order of the records with longer runs, as their positions; None if it stays as it is.

        Args:
            stores: the task's stores, which are open.
            topics: the inputs.
            owners: for each record in the order of processing, the place of its input in ``topics``.
            times: the timestamps in the same order.
            keys: returns a number for each record that tells its key.
        """
        if np.count_nonzero(owners[1:] != owners[:-1]) <= len(topics):
            return None
        codes = keys() if self.plain_keys and self.meetings else np.zeros(len(owners), np.int64)
        inputs = {topic: owners == place for place, topic in enumerate(topics)}
        ranks = np.array([self.ranks[topic] for topic in topics])[owners]
        order = np.concatenate(list(self._ordered(stores, _Arrived(inputs, ranks, times, codes))))
        return None if (order[1:] > order[:-1]).all() else order

    def _ordered(self, stores: Mapping[str, Any], arrived: _Arrived) -> Iterator[Integers]:
        """Yield the new order of all records, section by section."""
        opened = [stores[history.store] for history in self.histories]
        newest = [history.newest(store, arrived) for history, store in zip(self.histories, opened, strict=True)]
        total = len(arrived.times)
        sections = [(start, min(start + SECTION, total)) for start in range(0, total, SECTION)][::-1]
        while sections:
            start, stop = sections.pop()
            section = arrived.section(start, stop)
            order = self._waves(section)
            told = zip(self.histories, opened, newest, strict=True)
            if all(history.is_kept(store, section, int(times[stop - 1]), order) for history, store, times in told):
                yield order + start
            elif stop - start < 2 * SHORTEST:
                yield np.arange(start, stop)
            else:
                middle = (start + stop) // 2
                sections += [(middle, stop), (start, middle)]

    def _waves(self, section: _Arrived) -> Integers:
        """Return the positions of records that are put in a new order together."""
        ends = np.zeros(len(section.keys), np.bool_)
        for meeting in self.meetings:
            if meeting.first in section.inputs and meeting.second in section.inputs:
                ends |= meeting.ends(section.inputs, section.keys, section.times)
        return wave_order(ends, section.keys, section.ranks)


class _Input:
    """An input of a sub-topology, and the effect of its records on the state of their keys.

    Attributes:
        topic: its topic.
        written, looked_up: the stores that they may change, and the stores that they look up. Stores in ``_otherwise``
            are used in other ways than looked up as of a record's time, or given records as they come.
    """

    def __init__(
        self, part: Subtopology, promises: Mapping[str, Promises], region: KeyedRegion, source: SourceNode
    ) -> None:
        self.topic = source.topic
        self.written: set[str] = set()
        self.looked_up: set[str] = set()
        self._otherwise: set[str] = set()
        for name in region.reached(source.name):
            own, in_time = promises[name], name in region.timed
            as_of = {store for store, as_of in own.looks_up.items() if as_of} | {own.puts}
            self.written |= region.writes(name)
            self.looked_up |= own.looks_up.keys()
            self._otherwise |= set(part.nodes[name].stores) - (as_of if in_time else set())
            for child in part.nodes[name].children:
                # It looks up at the flush, or before what it looks up is forgotten.
                below = promises[child]
                self.looked_up |= below.looks_up.keys() if below.at_flush else set()

    def meets(self, other: "_Input") -> bool:
        """Return whether one of the two changes what the other uses."""
        return self.looks_up(other) or bool(self.written & (other.written | other.looked_up))

    def looks_up(self, other: "_Input") -> bool:
        """Return whether this input looks up what another puts, and does nothing else to its state."""
        return bool(other.written & self.looked_up) and not self.written & (other.written | other.looked_up)

    def looks_up_as_of(self, other: "_Input") -> bool:
        """Return whether it looks that up as of its own time, and the other puts it as of its own."""
        return self.looks_up(other) and not other.written & self.looked_up & (self._otherwise | other._otherwise)


def _ranks(inputs: Sequence[_Input]) -> dict[str, int]:
    """Return places in which, as far as possible, each input comes before inputs that look up what it puts."""
    ranks: dict[str, int] = {}
    waiting = list(inputs)
    while waiting:
        free = [one for one in waiting if not any(one.looks_up(other) for other in waiting)]
        ranks[(free or waiting)[0].topic] = len(ranks)
        waiting.remove((free or waiting)[0])
    return ranks
