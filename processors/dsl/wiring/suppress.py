"""The wiring of ``KTable.suppress``, and the table that comes out."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from millpond.errors import MissingSerdeError, TopologyError
from millpond.processors.dsl.wiring.graph import TopologyGraph
from millpond.processors.dsl.wiring.table import StoredTable, TableCopies, TableHandle
from millpond.processors.options.suppressed import Suppressed
from millpond.processors.runtime.nodes import SourceNode
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.tables.config import TableConfig
from millpond.processors.tables.suppress import Suppress, SuppressedView
from millpond.processors.tables.suppress_buffer import SuppressBuffer, suppress_buffer_spec
from millpond.processors.tables.table_view import TableView, ViewFactory
from millpond.stores.encoding.serdes import Serde, serde
from millpond.stores.typed.windows.windowed import SESSION_WINDOWED, TIME_WINDOWED

_TIMES_AND_ORIGIN = 28
"""The bytes of an update's buffer time, timestamp, offset and partition; the length of its topic's name is added."""


@dataclass(frozen=True)
class SuppressedTable(StoredTable):
    """A table with updates that are held back.

    Attributes:
        parent: the table of these updates.
        buffer: the name of the buffer's store.
        serdes: the serdes of keys and values, as the buffer writes them.
        make: makes the processor, given its configuration and the name of the store.
    """

    parent: TableHandle
    buffer: str
    serdes: tuple[Serde[Any], Serde[Any]]
    make: Callable[[TableConfig, str], Processor]

    def view(self) -> ViewFactory:
        parent, store, (key_serde, value_serde) = self.parent.view(), self.buffer, self.serdes

        def make(context: ProcessorContext) -> TableView:
            buffer = SuppressBuffer(context.store(store), value_serde)
            return SuppressedView(buffer, key_serde, parent.make(context))

        return ViewFactory((store, *parent.stores), make)

    def copied(self, copies: TableCopies) -> TableHandle:
        if self.serdes[0].name in (TIME_WINDOWED, SESSION_WINDOWED):
            # Copies of windows are in the tasks of the windows, not of their keys, where stream time is another.
            return super().copied(copies)
        return copies.once(self, partial(self._again, copies))

    def _again(self, copies: TableCopies, name: str) -> TableHandle:
        return _add(self.parent.copied(copies), name, f"{name}-buffer", self.serdes, self.make)


def suppress(table: TableHandle, suppressed: Suppressed) -> SuppressedTable:
    """Add the processor and its store; see ``KTable.suppress``.

    Raises:
        TopologyError: the table is versioned, or is to wait for windows but comes from no windowed aggregation.
    """
    if table.versioned:
        raise TopologyError(
            f"table {table.node!r} is versioned and cannot be suppressed: its updates are ordered by timestamp, those "
            f"of a buffer by arrival (KIP-914); materialize it in an unversioned store first"
        )
    graph = table.graph
    final = suppressed.wait is None
    delay = _window_delay(graph, table.node) if suppressed.wait is None else suppressed.wait
    name = suppressed.name or graph.new_name("KTABLE-SUPPRESS-")
    store = f"{suppressed.name}-store" if suppressed.name else graph.new_name("KTABLE-SUPPRESS-STATE-STORE-")
    serdes = _serde(table, "key"), _serde(table, "value")
    overhead = _TIMES_AND_ORIGIN + max(map(len, _topics(graph, table.node)))

    def make(config: TableConfig, store: str) -> Processor:
        return Suppress(config, suppressed, delay, final, store, serdes, overhead)

    return _add(table, name, store, serdes, make, final=final)


def _add(
    table: TableHandle,
    name: str,
    store: str,
    serdes: tuple[Serde[Any], Serde[Any]],
    make: Callable[[TableConfig, str], Processor],
    *,
    final: bool = False,
) -> SuppressedTable:
    graph = table.graph
    table.send_olds(force=True)
    graph.add_table(name, TableConfig())
    graph.add_table_processor(name, [table.node], lambda config: make(config, store), name)
    graph.add_store(suppress_buffer_spec(store, serdes[0], final=final), name)
    return SuppressedTable(graph, name, table.key_serde, table.value_serde, table, store, serdes, make)


def _serde(table: TableHandle, which: str) -> Serde[Any]:
    found = table.key_serde if which == "key" else table.value_serde
    if found is None:
        raise MissingSerdeError(
            f"the updates of table {table.node!r} are held back in a store, but the serde of its {which}s is not "
            f"known; name it in Materialized({which}_serde=...) of that table"
        )
    return serde(found)


def _topics(graph: TopologyGraph, node: str) -> list[str]:
    """Return the topics that the records of ``node`` come from."""
    here = graph.nodes[node]
    if isinstance(here, SourceNode):
        return [here.topic]
    return [topic for parent in here.parents for topic in _topics(graph, parent)]


def _window_delay(graph: TopologyGraph, node: str) -> int:
    """Return how long after its end a window of the aggregations above ``node`` closes."""
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
