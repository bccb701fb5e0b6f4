"""The versioned tables of verbs, also of rows that have an order (``order=``): of one key and time the greatest counts.

A version that is older than the history counts if it is valid within the history: versions that are valid "from the
beginning" come with the first record of a key, whenever that is.

A table keeps no order beside its versions, since a deleted one has no place for it. So the order of each key and
time is kept apart, as long as the table has a history of that time. It is not known for older versions, so none of them
replaces one of its own time that came in an earlier micro-batch.
"""

from functools import partial
from typing import Any

from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.dsl.streams_and_tables import KTable
from millpond.processors.options.materialized import Materialized
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.verbs.encoding.ordered_rows import order_and_row
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.encoding.times import MIN_TIME
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.expiry import Expired
from millpond.stores.typed.versions.late_puts import LatePuts
from millpond.stores.typed.windows.window import WindowStore


def sequenced_table(
    builder: StreamsBuilder,
    topic: str,
    store: str,
    history: int,
    *,
    ordered: bool,
    in_turn: bool = False,
    ttl: int | None = None,
    expired: Expired = Expired.SILENT,
) -> KTable:
    """Return a versioned table of a topic's rows; among rows of one key and time, the greatest order counts.

    Args:
        builder: of the topology.
        topic: the topic.
        store: the name of its store.
        history: how far back it keeps versions, in microseconds.
        ordered: whether rows have an order in front.
        in_turn: whether each row of a key replaces the one before it, whatever their times; for rows without an order.
        ttl: how long a row lives after its time, in microseconds; None for ever.
        expired: the treatment of expired rows.
    """
    late_puts = LatePuts.VALID_FIRST if ordered else LatePuts.VALID
    materialized = Materialized.versioned(
        store, history_retention=history, late_puts=late_puts, ttl=ttl, expired=expired
    )
    if not ordered:
        return table_of(builder, topic, materialized, in_turn=in_turn)
    name = f"{topic}-order"
    spec = StoreSpec(name, StoreKind.WINDOW, BYTES, BYTES, retention=history + 1, window_size=1)
    made = partial(Sequenced, name)
    rows = builder.stream(topic).process(made, stores=[spec], name=name, keeps_key=True, value_serde=BYTES)
    return rows.to_table(materialized)


def table_of(builder: StreamsBuilder, topic: str, materialized: Materialized, *, in_turn: bool) -> KTable:
    """Return the table of the rows of a topic; ``in_turn`` is as in ``sequenced_table``."""
    table = builder.table(topic, materialized=materialized)
    if in_turn:
        table.handle.graph.change_table(table.handle.node, in_turn=True)
    return table


class Sequenced(Operator):
    """Passes a row on unless one of its key and time, with a greater order, has come before.

    Args:
        store: the name of the store of orders, by key and time.
    """

    promises = Promises(by_key=True, keeps_records=True, keeps_positions=True)

    def __init__(self, store: str) -> None:
        self._name = store

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store: WindowStore[bytes, bytes] = context.store(self._name)

    def process(self, batch: Batch) -> None:
        places = list(zip(batch.keys, batch.timestamps, strict=True))
        distinct = dict.fromkeys(places)
        keys, times = [key for key, _ in distinct], [time for _, time in distinct]
        known: dict[Any, bytes | None] = dict(zip(distinct, self._store.fetch_many(keys, times), strict=True))
        greater: dict[Any, bytes] = {}
        last: dict[Any, int] = {}
        kept, rows = [], []
        forgotten = self._forgotten()
        for number, (place, value) in enumerate(zip(places, batch.values, strict=True)):
            order, row = order_and_row(value)
            before = greater.get(place, known[place])
            kept.append(before is None or order >= before)
            if kept[-1]:
                greater[place] = order
                if place[1] <= forgotten:
                    # Of these the table takes only the first.
                    kept[last.get(place, number)] = False
                    kept[number], last[place] = True, number
            rows.append(row)
        for (key, time), order in greater.items():
            self._store.put(key, order, time)
        self.context.count(CounterName.DROPPED_OUT_OF_ORDER, kept.count(False))
        passed = Batch(batch.keys, rows, batch.timestamps, positions=batch.positions)
        self.context.forward(passed.select(kept))

    def _forgotten(self) -> int:
        """Return the last time of which no orders are known any more."""
        observed = self._store.observed_stream_time
        return MIN_TIME if observed is None else observed - self._store.retention

    def advance(self, time: int) -> None:
        self._store.observe(time)
        super().advance(time)
