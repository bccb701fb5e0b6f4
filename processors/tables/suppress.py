"""``KTable.suppress``: holds updates back until a time has passed or until a window is closed (KIP-328).

A later update of a held key replaces the earlier one and keeps its buffer time. As in Kafka Streams, the old value of
an emitted update is the value before the key's last update, and its headers are those of the last update.
"""

from typing import Any

from millpond.errors import BufferFullError
from millpond.processors.options.suppressed import Suppressed
from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.batches.headers import NO_HEADERS
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.tables.config import TableConfig
from millpond.processors.tables.suppress_buffer import SuppressBuffer
from millpond.processors.tables.table_view import TableView
from millpond.stores.encoding.serdes import Serde
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP, ValueAndTimestamp


class Suppress(Operator):
    """Buffers each update, then emits updates that are due by the stream time that this processor has seen.

    Args:
        config: the configuration of the resulting table.
        suppressed: the bounds.
        delay: how far stream time must have moved past an update's buffer time.
        final: whether the buffer time is the end of the key's window, and deletions need not be emitted.
        store: the buffer's store.
        serdes: the serdes of the table's keys and values.
        overhead: how many bytes an update counts besides its key and values.
    """

    def __init__(
        self,
        config: TableConfig,
        suppressed: Suppressed,
        delay: int,
        final: bool,
        store: str,
        serdes: tuple[Serde[Any], Serde[Any]],
        overhead: int,
    ) -> None:
        self._config = config
        self._overhead = overhead
        self._suppressed = suppressed
        self._bounded = suppressed.max_records is not None or suppressed.max_bytes is not None
        self._delay = delay
        self._final = final
        self._store = store
        self._key_serde, self._value_serde = serdes

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        measure = self._suppressed.max_bytes is not None
        store = context.store(self._store)
        self._buffer = SuppressBuffer(store, self._value_serde, measure=measure, overhead=self._overhead)
        context.level(CounterName.WAITING, lambda: self._buffer.records)

    def process(self, batch: Batch) -> None:
        buffer, delay, final = self._buffer, self._delay, self._final
        raw_keys = list(map(self._key_serde.serialize, batch.keys))
        stream_time = buffer.stream_time
        newest = max(batch.timestamps) if stream_time is None else max(stream_time, *batch.timestamps)
        buffer.load(raw_keys, None if self._bounded else newest - delay)
        out = BatchBuilder(olds=self._config.send_olds)
        olds = batch.olds or [None] * len(batch)
        rows = zip(raw_keys, batch.keys, batch.values, olds, batch.timestamps, batch.headers_of_each, strict=True)
        for raw, key, value, old, timestamp, headers in rows:
            if stream_time is None or timestamp > stream_time:
                stream_time = timestamp
            buffer.put(raw, key.end if final else timestamp, timestamp, value, old, headers or NO_HEADERS)
            self._emit_due(out, stream_time - delay)
        buffer.stream_time = stream_time
        buffer.save()
        self.context.forward(out.build())

    def flush(self) -> None:
        self._buffer.save_totals()

    def complete(self) -> None:
        buffer = self._buffer
        buffer.load([], None)
        out = BatchBuilder(olds=self._config.send_olds)
        while buffer.first_time() is not None:
            self._emit_first(out)
        buffer.save()
        self.context.forward(out.build())

    def _emit_due(self, out: BatchBuilder, expiry: int) -> None:
        buffer = self._buffer
        while (first := buffer.first_time()) is not None and first <= expiry:
            self._emit_first(out)
        if self._bounded and self._over_capacity():
            if not self._suppressed.emit_early:
                raise BufferFullError(self._full())
            while self._over_capacity():
                self._emit_first(out)

    def _emit_first(self, out: BatchBuilder) -> None:
        key, held = self._buffer.take_first()
        if held.value is not None or not self._final:
            out.current = held.headers
            out.add(self._key_serde.deserialize(key), held.value, held.timestamp, held.old)

    def _over_capacity(self) -> bool:
        bounds, buffer = self._suppressed, self._buffer
        return (bounds.max_records is not None and buffer.records > bounds.max_records) or (
            bounds.max_bytes is not None and buffer.bytes > bounds.max_bytes
        )

    def _full(self) -> str:
        bounds, buffer = self._suppressed, self._buffer
        others = (
            "or give the windows a shorter grace"
            if self._final
            else "wait for less time, or let a full buffer emit early"
        )
        return (
            f"{self.context.shown!r} in task {self.context.task_id} holds back {buffer.records} records and "
            f"{buffer.bytes} bytes, but its bounds are {bounds.max_records} records and {bounds.max_bytes} bytes; "
            f"raise them, {others}"
        )


class SuppressedView(TableView):
    """The table as operators downstream know it: without the updates that are held back."""

    def __init__(self, buffer: SuppressBuffer, key_serde: Serde[Any], parent: TableView) -> None:
        self._buffer = buffer
        self._key_serde = key_serde
        self._parent = parent

    def get(self, key: Any) -> ValueAndTimestamp[Any] | None:
        held, prior = self._buffer.prior(self._key_serde.serialize(key))
        if not held:
            return self._parent.get(key)
        return None if prior is None else ValueAndTimestamp(prior, UNKNOWN_TIMESTAMP)
