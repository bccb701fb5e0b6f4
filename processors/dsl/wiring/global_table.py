"""``GlobalKTable``: a table that every task holds in full, so that a stream can look up any of its keys."""

from dataclasses import dataclass, field
from functools import partial

from millpond.errors import NoHistoryError
from millpond.processors.dsl.wiring.graph import TopologyGraph
from millpond.processors.dsl.wiring.table import check_caching
from millpond.processors.options.materialized import TABLE_KINDS, Materialized
from millpond.processors.options.records import Consumed
from millpond.processors.options.serdes import SerdeLike
from millpond.processors.tables.config import TableConfig
from millpond.processors.tables.writer import TableSource


@dataclass(frozen=True)
class GlobalKTable:
    """A table that is not split among the tasks; made by ``StreamsBuilder.global_table``, used by ``KStream.join``.

    Attributes:
        node: the node that keeps it current.
        store: the name of its store.
        key_serde, value_serde: the serdes of its rows.
    """

    graph: TopologyGraph = field(repr=False)
    node: str
    store: str
    key_serde: SerdeLike | None
    value_serde: SerdeLike | None


def add_global_table(graph: TopologyGraph, topic: str, consumed: Consumed, materialized: Materialized) -> GlobalKTable:
    """Read ``topic`` as a global table.

    Raises:
        TopologyError: the topic is already read, or the table would be versioned (KIP-914).
    """
    source = graph.new_name("KSTREAM-SOURCE-")
    node = consumed.name or graph.new_name("KTABLE-SOURCE-")
    store = graph.new_name(f"{topic}-STATE-STORE-")
    spec = materialized.spec(store, TABLE_KINDS, consumed.key_serde, consumed.value_serde)
    if spec.versioned:
        raise NoHistoryError(
            f"the global table of topic {topic!r} cannot be versioned (store {spec.name!r}): nothing orders its "
            "records with those of the streams, so an as-of lookup would mean little; leave the kind out, "
            "or join with a versioned table"
        )
    check_caching(spec, materialized)
    graph.add_global_store(spec, topic, consumed, source, node, partial(TableSource, TableConfig(spec.name)))
    return GlobalKTable(graph, node, spec.name, spec.key_serde, spec.value_serde)
