"""Longer runs: inputs that meet only in a table that one fills and another looks up need not alternate.

The records of a micro-batch are processed in the order of time, so inputs alternate every few records, and a short run
costs almost as much as a long one. But where a stream is joined with a table, only the lookups of a record's own key
tell whether the table's records came before it. So the micro-batch is cut into stretches, as few as possible, in which
no lookup would find what came after it; within a stretch the table's records go first, and each input is one run. The
answers are the same, record for record: an input's own order never changes.

Rule of this module: what processors do is known only from what they say of themselves (``Processor.puts``, ``looks_up``
and ``keeps_records``). Where that is not enough, the order stays as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import combinations
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from millpond.processors.runtime.nodes import SourceNode
from millpond.processors.runtime.processor import Processor
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.runtime.time_order import reached_by_key
from millpond.stores.serdes import PLAIN_KEYS, serde

_Integers = npt.NDArray[np.int64]

_NEVER: Final = np.iinfo(np.int64).min


@dataclass(frozen=True)
class _Lookup:
    """One input looks up what another one puts.

    Attributes:
        writer, reader: the two topics.
        as_of: whether every lookup is as of the record's timestamp.
        history: the store, if it has a history.
    """

    writer: str
    reader: str
    as_of: bool
    history: Any

    def keeps_history(self, written: _Integers, read: _Integers) -> bool:
        """Whether no record of the writer takes history away that a record of the reader would have seen.

        Args:
            written, read: the timestamps of the two.
        """
        if self.history is None:
            return True
        newest, observed = int(written.max()), self.history.observed_stream_time
        horizon: int = (newest if observed is None else max(newest, observed)) - self.history.history_retention
        return int(read.min()) >= horizon


@dataclass(frozen=True)
class LookupOrder:
    """In which order the inputs of a task may be taken within a stretch.

    Attributes:
        ranks: the place of each topic.
        lookups: what decides where stretches end.
        plain_keys: whether equal keys are known by equal bytes.
    """

    ranks: Mapping[str, int]
    lookups: Sequence[_Lookup]
    plain_keys: bool

    @classmethod
    def of(cls, part: Subtopology, processors: Mapping[str, Processor], stores: Mapping[str, Any]) -> Self | None:
        """The order for a task of ``part``; None if its inputs have to alternate as they do."""
        inputs = [_Input(part, processors, source) for source in part.sources.values()]
        lookups: list[_Lookup] = []
        for one, other in combinations(inputs, 2):
            for kind, name in one.claims & other.claims:
                users = {one.uses(name): one, other.uses(name): other}
                if kind != "store" or None in users or set(users) == {_Use.PUTS}:
                    return None
                if _Use.PUTS in users:
                    writer, (reader,) = users.pop(_Use.PUTS), users.values()
                    history = None if part.stores[name].history_retention is None else stores[name]
                    lookups.append(_Lookup(writer.topic, reader.topic, reader.looks_up_as_of(name), history))
        ranks = _ranks(list(part.sources), lookups)
        if ranks is None:
            return None
        keys = [node.consumed.key_serde for node in part.sources.values()]
        keys += [spec.key_serde for spec in part.stores.values()]
        return cls(ranks, lookups, all(key is not None and serde(key) in PLAIN_KEYS for key in keys))

    def regroup(
        self, topics: Sequence[str], owners: npt.NDArray[np.intp], times: _Integers, keys: Callable[[], _Integers]
    ) -> npt.NDArray[np.intp]:
        """The order of the inputs with longer runs.

        Args:
            topics: the inputs.
            owners: for each record in the order of processing, the place of its input in ``topics``.
            times: the timestamps in the same order.
            keys: returns a number for each record that tells its key.
        """
        if np.count_nonzero(owners[1:] != owners[:-1]) <= len(topics):
            return owners
        codes: _Integers | None = None
        conflicts: list[tuple[int, int]] = []
        for lookup in self.lookups:
            if lookup.writer not in topics or lookup.reader not in topics:
                continue
            writes = owners == topics.index(lookup.writer)
            reads = owners == topics.index(lookup.reader)
            if not lookup.keeps_history(times[writes], times[reads]):
                return owners
            if codes is None:
                codes = keys() if self.plain_keys else np.zeros(len(owners), np.int64)
            conflicts += _conflicts(writes, reads, codes, times, as_of=lookup.as_of)
        ranks = np.array([self.ranks[topic] for topic in topics])
        places = _stretches(len(owners), sorted(conflicts)) * len(topics) + ranks[owners]
        regrouped: npt.NDArray[np.intp] = owners[places.argsort(kind="stable")]
        return regrouped


class _Use(Enum):
    """What the processors below an input do with a store."""

    PUTS = auto()
    """They put the input's records into it as they come, and look it up at most."""
    LOOKS_UP = auto()


class _Input:
    """An input of a sub-topology, and what is below it."""

    def __init__(self, part: Subtopology, processors: Mapping[str, Processor], source: SourceNode) -> None:
        self.topic = source.topic
        self.claims = part.claims(source.name)
        self._part = part
        self._processors = processors
        self._source = source
        below = {name for kind, name in self.claims if kind == "node"} - {source.name}
        self._changed = set[str]().union(
            *(
                part.claims(child)
                for name in below
                if not processors[name].keeps_records
                for child in part.nodes[name].children
            )
        )
        self._below = below

    def uses(self, store: str) -> _Use | None:
        """What is done with a store; None if that is not known."""
        users = self._users(store)
        lookers = {user for user in users if store in self._processors[user].looks_up}
        if any(("node", looker) in self._changed for looker in lookers):
            return None
        if lookers == users:
            return _Use.LOOKS_UP
        putters = users - lookers
        if all(name in self._source.children and self._processors[name].puts == store for name in putters):
            return _Use.PUTS
        return None

    def looks_up_as_of(self, store: str) -> bool:
        """Whether all lookups are as of the record's timestamp."""
        return all(self._processors[user].looks_up[store] for user in self._users(store))

    def _users(self, store: str) -> set[str]:
        return {name for name in self._below if store in self._part.nodes[name].stores}


def _ranks(topics: Sequence[str], lookups: Sequence[_Lookup]) -> dict[str, int] | None:
    """Places in which each writer comes before its readers; None if there are none."""
    ranks: dict[str, int] = {}
    while len(ranks) < len(topics):
        free = [
            topic
            for topic in topics
            if topic not in ranks and all(lookup.writer in ranks for lookup in lookups if lookup.reader == topic)
        ]
        if not free:
            return None
        ranks[free[0]] = len(ranks)
    return ranks


def _conflicts(
    writes: npt.NDArray[np.bool_], reads: npt.NDArray[np.bool_], keys: _Integers, times: _Integers, *, as_of: bool
) -> list[tuple[int, int]]:
    """The writes that a lookup before them must not see: the place of each, and of the last such lookup."""
    rows = (writes | reads).nonzero()[0]
    late = writes[rows]
    if as_of:
        reached = reached_by_key(np.where(reads[rows], times[rows], _NEVER), keys[rows])
        late &= reached >= times[rows]
    if not late.any():
        return []
    last = reached_by_key(np.where(reads[rows], rows, -1), keys[rows])
    late &= last >= 0
    return list(zip(rows[late].tolist(), last[late].tolist(), strict=True))


def _stretches(count: int, conflicts: Sequence[tuple[int, int]]) -> _Integers:
    """The number of the stretch that each record is in: each begins with a write that the one before must not see."""
    begins = np.zeros(count, np.int64)
    begin = 0
    for write, last in conflicts:
        if last >= begin:
            begins[write] = 1
            begin = write
    return begins.cumsum()
