"""``KStream``: a stream of records, each a fact of its own, and the operators on it."""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

from millpond.errors import TopologyError
from millpond.processors.config import Consumed, Grouped, Joined, Produced, SerdeLike
from millpond.processors.grouped import KGroupedStream
from millpond.processors.ktable import KTable
from millpond.processors.processor import Processor
from millpond.processors.stateless import DropNullKeys, StreamFilter, StreamMapValues, StreamSelectKey
from millpond.processors.stream_table_join import StreamTableJoin
from millpond.processors.topology import ProcessorNode, SinkNode, SourceNode, TopologyGraph


class KStream:
    """A stream of records with keys, values and timestamps; made by ``StreamsBuilder.stream`` and by other operators.

    Attributes:
        repartition_required: whether the key has changed since the records last had the partition of their key. The
            next operator that needs equal keys together sends them through a repartition topic.
    """

    def __init__(
        self,
        graph: TopologyGraph,
        node: str,
        key_serde: SerdeLike | None,
        value_serde: SerdeLike | None,
        repartition_required: bool = False,
    ) -> None:
        self.graph = graph
        self.node = node
        self.key_serde = key_serde
        self.value_serde = value_serde
        self.repartition_required = repartition_required

    def filter(self, predicate: Callable[[Any, Any], bool], *, name: str | None = None) -> "KStream":
        """Keep the records for which ``predicate(key, value)`` is true."""
        return self._then("KSTREAM-FILTER-", lambda: StreamFilter(predicate), name)

    def map_values(
        self, mapper: Callable[[Any], Any], *, value_serde: SerdeLike | None = None, name: str | None = None
    ) -> "KStream":
        """Replace each value by ``mapper(value)``. ``value_serde`` is that of the new values; the same unless given."""
        stream = self._then("KSTREAM-MAPVALUES-", lambda: StreamMapValues(mapper), name)
        stream.value_serde = value_serde or self.value_serde
        return stream

    def select_key(
        self, selector: Callable[[Any, Any], Any], *, key_serde: SerdeLike | None = None, name: str | None = None
    ) -> "KStream":
        """Replace each key by ``selector(key, value)``; equal keys come together again where an operator needs it."""
        stream = self._then("KSTREAM-KEY-SELECT-", lambda: StreamSelectKey(selector), name)
        stream.key_serde = key_serde or self.key_serde
        stream.repartition_required = True
        return stream

    def join(self, table: KTable, joiner: Callable[..., Any], joined: Joined | None = None) -> "KStream":
        """Join each record with the table's value of its key; without one the record is dropped (KIP-77).

        Against a versioned table the value is the one that was valid at the record's timestamp (KIP-914).

        Args:
            table: the table to look up.
            joiner: ``joiner(value, table_value)``, or with three parameters ``joiner(key, value, table_value)``.
            joined: serdes and name.
        """
        return self._join_table(table, joiner, joined or Joined(), left=False)

    def left_join(self, table: KTable, joiner: Callable[..., Any], joined: Joined | None = None) -> "KStream":
        """As ``join``, but a record without a match is joined with None."""
        return self._join_table(table, joiner, joined or Joined(), left=True)

    def _join_table(self, table: KTable, joiner: Callable[..., Any], joined: Joined, *, left: bool) -> "KStream":
        stream = self.repartitioned(joined.name, joined.key_serde, joined.value_serde)
        getter = table.value_getter()
        with_key = keyed_joiner(joiner)
        prefix = "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-"
        result = stream._then(prefix, lambda: StreamTableJoin(getter, with_key, left=left), joined.name, getter.stores)
        result.value_serde = None
        return result

    def group_by_key(self, grouped: Grouped | None = None) -> KGroupedStream:
        """Group by the records' own keys, for an aggregation."""
        return KGroupedStream(self, grouped or Grouped())

    def to(self, topic: str, produced: Produced | None = None) -> None:
        """Write the records to a sink.

        Raises:
            TopologyError: neither the stream nor ``produced`` says how keys and values become bytes or columns.
        """
        produced = produced or Produced()
        key_serde, value_serde = produced.key_serde or self.key_serde, produced.value_serde or self.value_serde
        if produced.schema is None and (key_serde is None or value_serde is None):
            missing = "key" if key_serde is None else "value"
            raise TopologyError(
                f"sink {topic!r} has no {missing} serde: give Produced({missing}_serde=...), or a DataFrame schema"
            )
        name = produced.name or self.graph.new_name("KSTREAM-SINK-")
        described = Produced(key_serde, value_serde, produced.schema, name)
        self.graph.add(SinkNode(name, [self.node], topic=topic, produced=described))

    def repartitioned(
        self, name: str | None = None, key_serde: SerdeLike | None = None, value_serde: SerdeLike | None = None
    ) -> "KStream":
        """This stream with equal keys together: itself, or read back from a repartition topic if the key changed."""
        if not self.repartition_required:
            return self
        key, value = key_serde or self.key_serde, value_serde or self.value_serde
        if key is None or value is None:
            raise TopologyError(
                f"the records of {self.node!r} must travel to the tasks of their new keys, but their "
                f"{'key' if key is None else 'value'} serde is not known; name it in Grouped or Joined"
            )
        topic = f"{name or self.graph.new_name('KSTREAM-REPARTITION-')}-repartition"
        checked = self._then("KSTREAM-FILTER-", DropNullKeys, None)
        sink, source = self.graph.new_name("KSTREAM-SINK-"), self.graph.new_name("KSTREAM-SOURCE-")
        self.graph.internal_topics.add(topic)
        self.graph.add(SinkNode(sink, [checked.node], topic=topic, produced=Produced(key, value, name=sink)))
        self.graph.add(SourceNode(source, topic=topic, consumed=Consumed(key, value, name=source)))
        return KStream(self.graph, source, key, value)

    def _then(
        self, prefix: str, supplier: Callable[[], Processor], name: str | None, stores: tuple[str, ...] = ()
    ) -> "KStream":
        """The stream behind a new processor with this stream as its only parent."""
        node = name or self.graph.new_name(prefix)
        self.graph.add(ProcessorNode(node, [self.node], supplier=supplier))
        self.graph.connect(node, *stores)
        return KStream(self.graph, node, self.key_serde, self.value_serde, self.repartition_required)


def keyed_joiner(joiner: Callable[..., Any]) -> Callable[[Any, Any, Any], Any]:
    """``joiner`` as a function of key, left value and right value; a joiner of two parameters does not see the key."""
    try:
        positional = [
            p
            for p in signature(joiner).parameters.values()
            if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD) and p.default is Parameter.empty
        ]
    except (TypeError, ValueError):
        positional = []
    if len(positional) == 3:
        return joiner
    return lambda key, left, right: joiner(left, right)
