"""Holds a table's updates back until the commit and keeps only the last of each key (``Materialized.with_caching``)."""

from typing import Any

import numpy as np
import pyarrow as pa

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns, Records, joined
from millpond.processors.runtime.batches.headers import NO_HEADERS, Headers
from millpond.processors.runtime.batches.windowed_columns import WindowedArray
from millpond.processors.runtime.metrics import TaskMetric
from millpond.processors.runtime.processor import ProcessorContext
from millpond.stores.encoding.serdes import Serde


class UpdateCache:
    """The last update of each key since the last commit, with the value before the first of them."""

    def __init__(self, key_serde: Serde[Any]) -> None:
        self._key_serde = key_serde
        self._updates: dict[bytes, tuple[Any, Any, int, Any, bool, Headers]] = {}
        self._single_batch: Batch | None = None
        self._columns: Columns | None = None

    def add(self, batch: Batch) -> None:
        """Add updates; a later one, headers included, replaces an earlier one of its key, but keeps its old value."""
        empty = self._single_batch is None and self._columns is None and not self._updates
        if empty and _distinct(batch.keys):
            self._single_batch = batch
            return
        self._merge_held()
        self._merge(batch)

    def add_columns(self, columns: Columns) -> None:
        """Add updates as columns, all with the values before them or none; keys are equal if their bytes are."""
        if self._single_batch is not None or self._updates:
            self.add(columns.to_batch())
            return
        if self._columns is None:
            self._columns = _last_of_each_key(columns)
            return
        held, self._columns = joined([self._columns, columns]), None
        if isinstance(held, Columns):
            self._columns = _last_of_each_key(held)
        else:
            self._merge(held)

    def _merge_held(self) -> None:
        """Turn updates that are held in one piece into single ones."""
        for held in (self._single_batch, self._columns):
            if held is not None:
                self._merge(held.to_batch())
        self._single_batch = self._columns = None

    def _merge(self, batch: Batch) -> None:
        olds, headers = batch.olds or [None] * len(batch), batch.headers
        for i, raw in enumerate(map(self._key_serde.serialize, batch.keys)):
            before = self._updates.get(raw)
            old = olds[i] if before is None else before[3]
            carried = NO_HEADERS if headers is None else headers[i]
            self._updates[raw] = (batch.keys[i], batch.values[i], batch.timestamps[i], old, batch.latest_at(i), carried)

    def take(self) -> Records:
        """Remove and return all held updates, in the order in which their keys first came."""
        if self._columns is not None:
            columns, self._columns = self._columns, None
            return columns
        if self._single_batch is not None:
            taken, self._single_batch = self._single_batch, None
            return taken
        rows = list(self._updates.values())
        self._updates = {}
        if not rows:
            return Batch([], [], [])
        keys, values, timestamps, olds, latest, headers = map(list, zip(*rows, strict=True))
        return Batch(
            keys,
            values,
            timestamps,
            olds,
            None if all(latest) else latest,
            headers=headers if any(headers) else None,
        )


def _last_of_each_key(columns: Columns) -> Columns:
    """Return each key's last update, with the value before the first one, in the order in which the keys first came."""
    keys = columns.keys
    numbers = keys.numbers if isinstance(keys, WindowedArray) else keys.dictionary_encode().indices.to_numpy()
    _, firsts, numbers = np.unique(numbers, return_index=True, return_inverse=True)
    if len(firsts) == len(columns):
        return columns
    last = np.empty_like(firsts)
    last[numbers] = np.arange(len(columns))
    order = firsts.argsort()
    kept = columns.taken(last[order])
    if columns.olds is not None:
        kept.olds = columns.olds.take(pa.array(firsts[order]))
    return kept


def _distinct(keys: list[Any]) -> bool:
    try:
        return len(set(keys)) == len(keys)
    except TypeError:
        return False


class UpdateForwarder:
    """Forwards a table's updates: each at once, or with caching the last of each key at ``flush``.

    Args:
        context: the context of the processor that makes the updates.
        key_serde: the serde of the table's keys.
        caching: whether updates are held back.
    """

    def __init__(self, context: ProcessorContext, key_serde: Serde[Any], *, caching: bool) -> None:
        self._context = context
        self._cache = UpdateCache(key_serde) if caching else None
        self._made = 0

    def replaced(self, updates: int) -> None:
        """Count updates that the operator itself has replaced by later ones, which it sends."""
        self._made += updates

    def send(self, updates: Batch) -> None:
        if self._cache is None:
            self._context.forward(updates)
        else:
            self._made += len(updates)
            self._cache.add(updates)

    def send_columns(self, updates: Columns) -> None:
        """Send updates as columns, as ``send`` does."""
        if self._cache is None:
            self._context.forward_columns(updates)
        elif updates.latest is not None:
            self.send(updates.to_batch())
        else:
            self._made += len(updates)
            self._cache.add_columns(updates)

    def flush(self) -> None:
        if self._cache is None:
            return
        held = self._cache.take()
        self._measure(len(held))
        if isinstance(held, Columns):
            self._context.forward_columns(held)
        else:
            self._context.forward(held)

    def _measure(self, forwarded: int) -> None:
        if self._made:
            self._context.metrics.add(TaskMetric.CACHE_UPDATES, self._made, self._context.shown)
            self._context.metrics.add(TaskMetric.CACHE_HITS, self._made - forwarded, self._context.shown)
            self._made = 0
