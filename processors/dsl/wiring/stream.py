"""``StreamHandle``: a stream in the graph, as wiring takes and returns it; ``KStream`` wraps one."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Self

from millpond.errors import MissingSerdeError
from millpond.processors.dsl.wiring.graph import TopologyGraph
from millpond.processors.dsl.wiring.sinks import TopicExtractor, add_sink
from millpond.processors.options.records import Produced
from millpond.processors.options.serdes import SerdeLike, same_serde
from millpond.processors.runtime.nodes import SourceNode
from millpond.processors.runtime.processor import Processor
from millpond.processors.streams.stateless import DropNullKeys, StreamPass


@dataclass(frozen=True)
class StreamHandle:
    """A stream of records.

    Attributes:
        graph: its graph.
        node: the node that the records come out of.
        key_serde, value_serde: their serdes; None if not known.
        repartition_required: whether the key has changed since the records were last partitioned by it. The next
            operator that needs equal keys together sends them through a repartition topic.
    """

    graph: TopologyGraph = field(repr=False)
    node: str
    key_serde: SerdeLike | None
    value_serde: SerdeLike | None
    repartition_required: bool = False

    def then(
        self, prefix: str, supplier: Callable[[], Processor], name: str | None = None, stores: tuple[str, ...] = ()
    ) -> Self:
        """Return the stream that comes out of a new processor whose only parent is this stream."""
        node = name or self.graph.new_name(prefix)
        self.graph.add_processor(node, [self.node], supplier)
        self.graph.connect(node, *stores)
        return replace(self, node=node)

    def retyped(
        self, key_serde: SerdeLike | None = None, value_serde: SerdeLike | None = None, *, rekeyed: bool = False
    ) -> Self:
        """Return this stream with other serdes where they are given; ``rekeyed`` if the key may have changed."""
        return replace(
            self,
            key_serde=key_serde or self.key_serde,
            value_serde=value_serde or self.value_serde,
            repartition_required=self.repartition_required or rekeyed,
        )

    def with_new_values(self) -> Self:
        """Return this stream with values of another type, for which the builder's serde is used."""
        return replace(self, value_serde=self.graph.value_serde)

    def merged(self, others: tuple["StreamHandle", ...], name: str | None = None) -> Self:
        """Return all records of this stream and of ``others``; a serde that they do not share becomes the builder's."""
        streams: tuple[StreamHandle, ...] = (self, *others)
        node = name or self.graph.new_name("KSTREAM-MERGE-")
        parents: dict[str, None] = {}
        for number, stream in enumerate({id(stream): stream for stream in streams}.values()):
            parent = stream.node
            if parent in parents and not isinstance(self.graph.nodes[parent], SourceNode):
                # A second stream of the same table.
                parent = f"{node}-{number}"
                self.graph.add_processor(parent, [stream.node], StreamPass)
            parents[parent] = None
        self.graph.add_processor(node, parents, StreamPass)
        key, value = self.key_serde, self.value_serde
        return replace(
            self,
            node=node,
            key_serde=key if all(same_serde(other.key_serde, key) for other in others) else self.graph.key_serde,
            value_serde=value
            if all(same_serde(other.value_serde, value) for other in others)
            else self.graph.value_serde,
            repartition_required=any(stream.repartition_required for stream in streams),
        )

    def together(
        self,
        name: str | None = None,
        key_serde: SerdeLike | None = None,
        value_serde: SerdeLike | None = None,
        *,
        keep_null_keys: bool = False,
    ) -> Self:
        """Return this stream with equal keys together: itself, or after a repartition topic if the key changed.

        A record without a key is dropped on the way unless ``keep_null_keys``, for operators that want it (KIP-962).
        """
        if not self.repartition_required:
            return self
        return self.through_topic(name, key_serde, value_serde, keep_null_keys=keep_null_keys)

    def through_topic(
        self,
        name: str | None,
        key_serde: SerdeLike | None,
        value_serde: SerdeLike | None,
        *,
        keep_null_keys: bool = True,
    ) -> Self:
        """Return this stream written to the repartition topic ``<name>-repartition`` and read back.

        Raises:
            TopologyError: a serde is not known.
        """
        graph = self.graph
        key, value = key_serde or self.key_serde, value_serde or self.value_serde
        if key is None or value is None:
            raise MissingSerdeError(
                f"the records of {self.node!r} must travel to the tasks of their keys, but their "
                f"{'key' if key is None else 'value'} serde is not known; name it in Grouped, Joined, StreamJoined or "
                "Repartitioned"
            )
        sent = self if keep_null_keys else self.then("KSTREAM-FILTER-", DropNullKeys)
        topic = f"{name or graph.new_name('KSTREAM-REPARTITION-')}-repartition"
        sink, source = graph.new_name("KSTREAM-SINK-"), graph.new_name("KSTREAM-SOURCE-")
        graph.add_internal_topic(topic, sink, source, [sent.node], (key, value))
        return replace(self, node=source, key_serde=key, value_serde=value, repartition_required=False)

    def repartitioned(self, name: str | None, key_serde: SerdeLike | None, value_serde: SerdeLike | None) -> Self:
        """Return ``through_topic`` of the records that have a key."""
        name = name or self.graph.new_name("KSTREAM-REPARTITION-")
        self.graph.check_unread(f"{name}-repartition")
        # Not numbered, as the names of stores are, by which a job finds its state.
        keyed = self.then("", DropNullKeys, f"{name}-filter")
        return keyed.through_topic(name, key_serde, value_serde)

    def write(self, topic: str | TopicExtractor, produced: Produced, topics: Collection[str] = ()) -> None:
        """Write the records to a sink, or to those among which a function chooses.

        Raises:
            TopologyError: neither the stream nor ``produced`` says how keys and values become bytes or columns, or the
                topics that the function may choose are missing.
        """
        described = replace(
            produced,
            key_serde=produced.key_serde or self.key_serde,
            value_serde=produced.value_serde or self.value_serde,
        )
        add_sink(self.graph, [self.node], topic, topics, described)
