"""``deduplicate``: the first row of each key, once, and none that comes within some time after it.

The rows of a key are taken in the order of their times, at equal times by their order, or else by their bytes. The
first one is kept, and after that each one that is later than the last one kept by more than ``within``. All others are
duplicates of the one kept before them.

With a grace the answer is that of all rows in time, in whatever order they come. Without one a row is taken at once.
The kept rows do not change then, so a row is also a duplicate of a later one that came before.

The state has the time of each key's last kept row, as long as a duplicate of it may come.

Rule of this module: it decides with the columns of keys and times alone, and passes rows on as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.options.records import Consumed
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.late import Integers
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.verbs.functions.distances import far_apart
from millpond.processors.verbs.projections import Keys, Rows, Times
from millpond.processors.verbs.rows_in_time import InTime, RowsInTime, in_order
from millpond.processors.verbs.verb import PackedRows, Verb
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.expiry import Expiry
from millpond.stores.typed.timestamped_columns import TimestampedColumns
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore

STORE: Final = "deduplicate"
"""The store with the time of each key's row that was kept last."""

KEPT_TIME: Final = "kept_time"
"""The column with that time."""


@dataclass(frozen=True)
class DeduplicateSpec(InTime):
    """The parameters of the operator.

    Attributes:
        within: how much later than the row that is kept its duplicates are at most, in microseconds.
    """

    within: int

    @property
    def stores(self) -> list[StoreSpec]:
        """The store of times; its clock is the watermark, or stream time where nothing waits. And of what waits."""
        lives = self.within + 1 + (0 if self.waits else self.late)
        kept = StoreSpec(STORE, StoreKind.TIMESTAMPED_KEY_VALUE, BYTES, BYTES, ttl=min(lives, MAX_TIME))
        return [kept, self.buffer.store_spec] if self.waits else [kept]


class Deduplicate(RowsInTime):
    """Passes rows on that are no duplicates."""

    def __init__(self, spec: DeduplicateSpec) -> None:
        super().__init__(spec)
        self._within = spec.within

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        store: TimestampedKeyValueStore[bytes, bytes] = context.store(STORE)
        form = column_serde(BYTES)
        assert form is not None
        assert store.expiry is not None
        self._kept = TimestampedColumns(store, form, form)
        self._expiry: Expiry = store.expiry

    def observe(self, time: int) -> None:
        self._expiry.observe(time)

    @property
    def observed(self) -> int | None:
        return self._expiry.observed

    def take(self, rows: Columns) -> None:
        """Pass on the rows that are no duplicates, in the order of their times, and remember them."""
        encoded = rows.keys.dictionary_encode()
        numbers = encoded.indices.to_numpy().astype(np.int64)
        _, known = self._kept.get(encoded.dictionary)
        order = in_order(numbers, rows.timestamps, rows.values)
        order = order[self._beyond(known, numbers[order], rows.timestamps[order])]
        places = order[far_apart(numbers[order], rows.timestamps[order], self._within)]
        if not len(places):
            return
        # Times of a key ascend, and the last one put counts.
        firsts = rows.taken(places)
        self._kept.put(firsts.keys, pa.array([b""] * len(firsts), pa.binary()), firsts.timestamps)
        ascending = np.lexsort((places, firsts.timestamps))
        self.context.forward_columns(self.plain(firsts.taken(ascending)))

    def _beyond(self, known: Any, numbers: Integers, times: Integers) -> Any:
        """Return a mask of rows that are no duplicates of rows kept before; ``known`` has these times by key."""
        there = known.is_valid().to_numpy(zero_copy_only=False)[numbers]
        kept = known.fill_null(MIN_TIME).to_numpy()[numbers]
        return ~there | (times > np.minimum(kept, MAX_TIME - self._within) + self._within)


def deduplicate(name: str, rows: PackedRows, *, within: int, late: int, waits: bool, columns: Sequence[str]) -> Verb:
    """Return the verb.

    Args:
        name: its name.
        rows: its input, with the topic ``input``.
        within: how much later than the row that is kept its duplicates are at most, in microseconds.
        late: how late a row may be, in microseconds.
        waits: whether rows wait for that long, so that earlier ones are taken before them.
        columns: the columns of the result, besides the key's.
    """
    spec = DeduplicateSpec(late, waits, rows.order is not None, within)
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    stream = builder.stream(rows.topic, Consumed(BYTES, BYTES))
    firsts = stream.process(
        partial(Deduplicate, spec), stores=spec.stores, name=name, keeps_key=True, value_serde=BYTES
    )
    firsts.to(name)
    keys = Keys.of_rows(rows)
    stores = {STORE: (keys, Times(KEPT_TIME, rows.times))}
    return Verb(builder.build(), {rows.topic: rows}, (keys, Rows(rows.rows, columns)), stores)
