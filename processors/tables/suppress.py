"""``KTable.suppress``: holds updates back until a time has passed or until a window is closed (KIP-328).

A later update of a held key takes the place of the earlier one and keeps its buffer time. As in Kafka Streams, what
goes out has the value before its last update as old value.
"""

from typing import Any

from millpond.errors import StoreFullError, TopologyError
from millpond.processors.dsl.ktable import KTable
from millpond.processors.options.config import SerdeLike
from millpond.processors.options.suppressed import Suppressed
from millpond.processors.runtime.batch import Batch, BatchBuilder
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.runtime.topology import ProcessorNode, SourceNode, TopologyGraph
from millpond.processors.tables.source import TableConfig
from millpond.processors.tables.suppress_buffer import SuppressBuffer, suppress_buffer_spec
from millpond.processors.tables.value_getters import ValueGetter, ValueGetterFactory
from millpond.stores.serdes import Serde, serde
from millpond.stores.typed.timestamped_keyvalue import UNKNOWN_TIMESTAMP, ValueAndTimestamp

_TIMES_AND_ORIGIN = 28
"""The bytes of an update's buffer time, timestamp, offset and partition; its topic's name comes on top."""


class Suppress(Processor):
    """Buffers each update, then emits what is due by the stream time that this processor has seen.

    Args:
        config: what downstream wants.
        suppressed: the bounds.
        delay: how far stream time must have moved past an update's buffer time.
        final: the buffer time is the end of the key's window, and deletions need not go out.
        store: the buffer's store.
        serdes: of the table's keys and values.
        overhead: how many bytes an update counts beside its key and values.
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

    def process(self, batch: Batch) -> None:
        buffer, delay, final = self._buffer, self._delay, self._final
        raw_keys = list(map(self._key_serde.serialize, batch.keys))
        stream_time = buffer.stream_time
        newest = max(batch.timestamps) if stream_time is None else max(stream_time, *batch.timestamps)
        buffer.load(raw_keys, None if self._bounded else newest - delay)
        out = BatchBuilder(olds=self._config.send_olds)
        olds = batch.olds or [None] * len(batch)
        rows = zip(raw_keys, batch.keys, batch.values, olds, batch.timestamps, strict=True)
        for raw, key, value, old, timestamp in rows:
            if stream_time is None or timestamp > stream_time:
                stream_time = timestamp
            buffer.put(raw, key.end if final else timestamp, timestamp, value, old)
            self._emit_due(out, stream_time - delay)
        buffer.stream_time = stream_time
        buffer.save()
        self.context.forward(out.build())

    def flush(self) -> None:
        self._buffer.save_totals()

    def _emit_due(self, out: BatchBuilder, expiry: int) -> None:
        buffer = self._buffer
        while (first := buffer.first_time()) is not None and first <= expiry:
            self._emit_first(out)
        if self._bounded and self._over_capacity():
            if not self._suppressed.emit_early:
                raise StoreFullError(self._full())
            while self._over_capacity():
                self._emit_first(out)

    def _emit_first(self, out: BatchBuilder) -> None:
        key, held = self._buffer.take_first()
        if held.value is not None or not self._final:
            out.add(self._key_serde.deserialize(key), held.value, held.timestamp, held.old)

    def _over_capacity(self) -> bool:
        bounds, buffer = self._suppressed, self._buffer
        return (bounds.max_records is not None and buffer.records > bounds.max_records) or (
            bounds.max_bytes is not None and buffer.bytes > bounds.max_bytes
        )

    def _full(self) -> str:
        bounds, buffer = self._suppressed, self._buffer
        return (
            f"{self.context.node!r} in task {self.context.task_id} holds back {buffer.records} records and "
            f"{buffer.bytes} bytes; its bounds are {bounds.max_records} records and {bounds.max_bytes} bytes. Raise "
            f"them, wait for less time, or let a full buffer emit early"
        )


class _SuppressedGetter(ValueGetter):
    """The table as everybody downstream believes it to be: without the updates that are held back."""

    def __init__(self, buffer: SuppressBuffer, key_serde: Serde[Any], parent: ValueGetter) -> None:
        self._buffer = buffer
        self._key_serde = key_serde
        self._parent = parent

    def get(self, key: Any) -> ValueAndTimestamp[Any] | None:
        held, prior = self._buffer.prior(self._key_serde.serialize(key))
        if not held:
            return self._parent.get(key)
        return None if prior is None else ValueAndTimestamp(prior, UNKNOWN_TIMESTAMP)


class SuppressedKTable(KTable):
    """A table some of whose updates are held back."""

    def __init__(self, parent: KTable, node: str, config: TableConfig, store: str, value_serde: SerdeLike) -> None:
        super().__init__(parent.graph, node, parent.key_serde, value_serde, config)
        self._parent = parent
        self._buffer = store

    def value_getter(self) -> ValueGetterFactory:
        parent, store = self._parent.value_getter(), self._buffer
        key_serde, value_serde = _serde(self, "key"), _serde(self, "value")

        def make(context: ProcessorContext) -> ValueGetter:
            buffer = SuppressBuffer(context.store(store), value_serde)
            return _SuppressedGetter(buffer, key_serde, parent.make(context))

        return ValueGetterFactory((store, *parent.stores), make)


def suppress(table: KTable, suppressed: Suppressed) -> KTable:
    """Add the processor and its store; see ``KTable.suppress``."""
    if table.versioned:
        raise TopologyError(
            f"table {table.node!r} is versioned and cannot be suppressed: its updates are ordered by timestamp, those "
            f"of a buffer by arrival (KIP-914); materialise it in an unversioned store first"
        )
    graph = table.graph
    delay = _window_delay(graph, table.node) if suppressed.wait is None else suppressed.wait
    node = suppressed.name or graph.new_name("KTABLE-SUPPRESS-")
    store = f"{suppressed.name}-store" if suppressed.name else graph.new_name("KTABLE-SUPPRESS-STATE-STORE-")
    serdes = _serde(table, "key"), _serde(table, "value")
    table.enable_old_values(force=True)
    config = TableConfig()
    final = suppressed.wait is None
    overhead = _TIMES_AND_ORIGIN + max(map(len, _topics(graph, table.node)))
    graph.add(
        ProcessorNode(
            node, [table.node], supplier=lambda: Suppress(config, suppressed, delay, final, store, serdes, overhead)
        )
    )
    graph.add_store(suppress_buffer_spec(store), node)
    return SuppressedKTable(table, node, config, store, serdes[1])


def _serde(table: KTable, which: str) -> Serde[Any]:
    found = table.key_serde if which == "key" else table.value_serde
    if found is None:
        raise TopologyError(
            f"the updates of table {table.node!r} are held back in a store, but the serde of its {which}s is not "
            f"known; name it in Materialized({which}_serde=...) of that table"
        )
    return serde(found)


def _topics(graph: TopologyGraph, node: str) -> list[str]:
    """The topics that the records of ``node`` come from."""
    here = graph.nodes[node]
    if isinstance(here, SourceNode):
        return [here.topic]
    return [topic for parent in here.parents for topic in _topics(graph, parent)]


def _window_delay(graph: TopologyGraph, node: str) -> int:
    """How long after its end a window of the aggregations above ``node`` is closed."""
    found: list[int] = []
    waiting = [node]
    while waiting:
        name = waiting.pop()
        if name in graph.windows:
            found.append(graph.windows[name].delay)
        elif not isinstance(graph.nodes[name], SourceNode):
            waiting.extend(graph.nodes[name].parents)
    if not found:
        raise TopologyError(
            f"until_window_closes needs a windowed table, but {node!r} comes from no windowed aggregation; "
            f"use until_time_limit, or window the aggregation"
        )
    return max(found)
