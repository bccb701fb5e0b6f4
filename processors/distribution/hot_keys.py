"""``HotKeys``: the keys that most records of a task have, from a sample of each run.

Rule of this module: it costs the same for a run of any size, some tens of microseconds, and nothing for a small one, in
which no key can keep a task busy. Keys are as they traveled.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.batches.columns import Columns, Records

pc: Any = _compute

LEAST: Final = 100
"""Of a run of fewer records one is looked at; of a micro-batch of fewer, nothing is told."""
MOST: Final = 3
"""The number of keys that are reported."""
HOT: Final = 1 / 8
"""The share of a task's records from which on a key is told of."""

_SAMPLE: Final = 256
_SEEN: Final = 8
"""So many samples of a key are no accident."""
_HELD: Final = 1 << 12
"""So many keys are held at most, between two runs."""
_PLACES: Final = (np.arange(_SAMPLE) + np.random.default_rng(7).random(_SAMPLE)) / _SAMPLE
"""The places of a sample, as shares of a run: even, and without a period that records could have, too."""
_SPREAD: Final = 2_654_435_761
"""Makes numbers that follow each other look drawn (Knuth's multiplicative hashing)."""


class HotKeys:
    """Counts the keys of a task in one micro-batch.

    A key is found in each large run if it has half as many records as a reported key needs. So reports are about
    right whatever the runs are.
    """

    def __init__(self) -> None:
        self._samples: Counter[tuple[str, Any]] = Counter()
        self._found: Counter[tuple[str, Any]] = Counter()
        self._records = 0

    def see(self, topic: str, records: Records) -> None:
        """Take a run of records of a topic."""
        count = len(records)
        if not count:
            return
        self._records += count
        if count < LEAST:
            self._add((topic, _one(records, (self._records * _SPREAD >> 8) % count)), 1, count)
            return
        taken = min(count, _SAMPLE)
        for key, times in _counted(records, count).items():
            if times >= taken * HOT / 2:
                self._add((topic, key), times, round(times * count / taken))

    def hottest(self) -> Mapping[tuple[str, Any], int]:
        """Return, by topic and key, about how many records the hottest keys had, the hottest one first."""
        if self._records < LEAST:
            return {}
        least = self._records * HOT
        found = self._found.most_common(MOST)
        return {place: times for place, times in found if times >= least and self._samples[place] >= _SEEN}

    def _add(self, place: tuple[str, Any], samples: int, records: int) -> None:
        self._samples[place] += samples
        self._found[place] += records
        if len(self._found) > _HELD:
            self._found = Counter(dict(self._found.most_common(_HELD // 8)))
            self._samples = Counter({kept: self._samples[kept] for kept in self._found})


def _one(records: Records, place: int) -> Any:
    """Return the key at a place."""
    return records.keys[place].as_py() if isinstance(records, Columns) else records.to_batch().keys[place]


def _counted(records: Records, count: int) -> Mapping[Any, int]:
    """Return how often each key is in a sample."""
    places = None if count <= _SAMPLE else (_PLACES * count).astype(np.int64)
    if isinstance(records, Columns):
        taken = records.keys if places is None else records.keys.take(pa.array(places))
        counted = pc.value_counts(taken)
        times = counted.field("counts").to_numpy()
        often = np.flatnonzero(times >= len(taken) * HOT / 2)
        keys = counted.field("values").take(pa.array(often)).to_pylist()
        return dict(zip(keys, times[often].tolist(), strict=True))
    keys = records.to_batch().keys
    return Counter(keys if places is None else [keys[place] for place in places.tolist()])
