"""The check that two inputs of a join can meet: equal keys must be in the same task.

A record's task follows from the bytes of its key. Both inputs always have the same number of partitions, so they are
co-partitioned if equal keys have equal bytes and records whose key has changed have been repartitioned.
"""

from typing import Protocol

from millpond.errors import NotCopartitionedError, TopologyError
from millpond.processors.dsl.wiring.graph import TopologyGraph
from millpond.processors.options.serdes import SerdeLike, same_serde
from millpond.stores.encoding.serdes import serde


class Keyed(Protocol):
    """A stream or a table in the topology."""

    @property
    def graph(self) -> TopologyGraph: ...
    @property
    def node(self) -> str: ...
    @property
    def key_serde(self) -> SerdeLike | None: ...


def check_copartitioned(left: Keyed, right: Keyed) -> None:
    """Refuse to join inputs whose equal keys would be in different tasks.

    Raises:
        TopologyError: the two write their keys in different ways, or come from different builders.
    """
    if left.graph is not right.graph:
        raise TopologyError(
            f"{left.node!r} and {right.node!r} come from two builders and so from two topologies; make both with one "
            "StreamsBuilder"
        )
    if left.key_serde is None or right.key_serde is None:
        return
    if not same_serde(left.key_serde, right.key_serde):
        this, other = serde(left.key_serde).name, serde(right.key_serde).name
        raise NotCopartitionedError(
            f"the inputs of the join of {left.node!r} with {right.node!r} are not co-partitioned: the keys of "
            f"{left.node!r} are written as {this!r}, those of {right.node!r} as {other!r}, so that equal keys would go "
            "to different tasks; read both with the same key serde, or convert one with map(..., key_serde=...)"
        )
