"""How a stream travels through a repartition topic in the graph."""

from typing import TYPE_CHECKING

from millpond.errors import TopologyError
from millpond.processors.options.config import Consumed, Produced, SerdeLike
from millpond.processors.runtime.topology import SinkNode, SourceNode
from millpond.processors.streams.stateless import DropNullKeys

if TYPE_CHECKING:
    from millpond.processors.dsl.kstream import KStream


def send_through_topic(
    stream: "KStream",
    name: str | None,
    key_serde: SerdeLike | None,
    value_serde: SerdeLike | None,
    *,
    keep_null_keys: bool = True,
) -> "KStream":
    """``stream`` written to the repartition topic ``<name>-repartition`` and read back.

    Raises:
        TopologyError: a serde is not known.
    """
    graph = stream.graph
    key, value = key_serde or stream.key_serde, value_serde or stream.value_serde
    if key is None or value is None:
        raise TopologyError(
            f"the records of {stream.node!r} must travel to the tasks of their keys, but their "
            f"{'key' if key is None else 'value'} serde is not known; name it in Grouped, Joined, StreamJoined or "
            "Repartitioned"
        )
    sent = stream if keep_null_keys else stream.then("KSTREAM-FILTER-", DropNullKeys, None)
    topic = f"{name or graph.new_name('KSTREAM-REPARTITION-')}-repartition"
    sink, source = graph.new_name("KSTREAM-SINK-"), graph.new_name("KSTREAM-SOURCE-")
    graph.internal_topics.add(topic)
    graph.add(SinkNode(sink, [sent.node], topic=topic, produced=Produced(key, value, name=sink)))
    graph.add(SourceNode(source, topic=topic, consumed=Consumed(key, value, name=source)))
    return type(stream)(graph, source, key, value)
