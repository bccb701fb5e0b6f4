"""Operators of a stream without joins, groups or tables, which return a stream of the same class.

Rule of this module: nothing is changed once it is made. An operator adds to the graph and wraps the new handle.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Self

from millpond.processors.dsl.branched import BranchedKStream, Split
from millpond.processors.dsl.wiring.sinks import TopicExtractor
from millpond.processors.dsl.wiring.stream import StreamHandle
from millpond.processors.dsl.wrapper import HandleWrapper
from millpond.processors.options.records import Produced, Repartitioned
from millpond.processors.options.serdes import SerdeLike
from millpond.processors.runtime.processor import Processor
from millpond.processors.streams.stateless import (
    StreamFilter,
    StreamFlatMap,
    StreamFlatMapValues,
    StreamMap,
    StreamMapValues,
    StreamPeek,
    StreamSelectKey,
)
from millpond.processors.streams.vectorized import VectorizedFilter, VectorizedMapValues, VectorizedSelectKey
from millpond.stores.specs.store_spec import StoreSpec


class StreamOperators(HandleWrapper[StreamHandle]):
    """A stream of records with keys, values and timestamps."""

    @property
    def repartition_required(self) -> bool:
        """True if the key has changed since the records were last partitioned by it.

        The next operator that needs equal keys together sends them through a repartition topic.
        """
        return self._handle.repartition_required

    def filter(
        self, predicate: Callable[[Any, Any], Any], *, vectorized: bool = False, name: str | None = None
    ) -> Self:
        """Keep the records for which ``predicate(key, value)`` is true.

        Args:
            predicate: the condition.
            vectorized: whether it takes columns: ``predicate(keys, values)`` gets Arrow arrays and returns an array of
                as many booleans; null is not true.
            name: the processor's name.
        """
        processor = VectorizedFilter if vectorized else StreamFilter
        return self._on(self._handle.then("KSTREAM-FILTER-", partial(processor, predicate), name))

    def filter_not(
        self, predicate: Callable[[Any, Any], Any], *, vectorized: bool = False, name: str | None = None
    ) -> Self:
        """Drop the records for which ``predicate(key, value)`` is true; the arguments are as in ``filter``."""
        processor = VectorizedFilter if vectorized else StreamFilter
        return self._on(self._handle.then("KSTREAM-FILTER-", partial(processor, predicate, wanted=False), name))

    def map(
        self,
        mapper: Callable[[Any, Any], tuple[Any, Any]],
        *,
        key_serde: SerdeLike | None = None,
        value_serde: SerdeLike | None = None,
        name: str | None = None,
    ) -> Self:
        """Replace each record with the pair ``mapper(key, value)``. Serdes are the same unless given."""
        stream = self._handle.then("KSTREAM-MAP-", partial(StreamMap, mapper), name)
        return self._on(stream.retyped(key_serde, value_serde, rekeyed=True))

    def map_values(
        self,
        mapper: Callable[..., Any],
        *,
        vectorized: bool = False,
        value_serde: SerdeLike | None = None,
        name: str | None = None,
    ) -> Self:
        """Replace each value with ``mapper(value)``, or ``mapper(key, value)`` if it takes two parameters.

        Args:
            mapper: makes the new values.
            vectorized: whether it takes columns: ``mapper(values)`` or ``mapper(keys, values)`` gets Arrow arrays and
                returns an array (of Arrow, NumPy or pandas) of as many values. On Spark they have the types of the
                DataFrame's columns, and no Python object is made of them; a result of structs fills the sink's columns.
            value_serde: the serde of the new values; the same unless given.
            name: the processor's name.

        >>> import pyarrow.compute as pc
        >>> from millpond.processors import StreamsBuilder, TopologyDriver
        >>> builder = StreamsBuilder(key_serde="string", value_serde="int64")
        >>> builder.stream("cents").map_values(lambda cents: pc.divide(cents, 100), vectorized=True).to("euros")
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe_all("cents", [("tea", 310, 0), ("milk", 180, 1)])
        ...     driver.read_batches("euros")[0].values
        [3, 1]
        """
        processor = VectorizedMapValues if vectorized else StreamMapValues
        stream = self._handle.then("KSTREAM-MAPVALUES-", partial(processor, mapper), name)
        return self._on(stream.retyped(None, value_serde))

    def flat_map(
        self,
        mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]],
        *,
        key_serde: SerdeLike | None = None,
        value_serde: SerdeLike | None = None,
        name: str | None = None,
    ) -> Self:
        """Replace each record with the pairs that ``mapper(key, value)`` returns. Serdes are the same unless given."""
        stream = self._handle.then("KSTREAM-FLATMAP-", partial(StreamFlatMap, mapper), name)
        return self._on(stream.retyped(key_serde, value_serde, rekeyed=True))

    def flat_map_values(
        self, mapper: Callable[..., Iterable[Any]], *, value_serde: SerdeLike | None = None, name: str | None = None
    ) -> Self:
        """Replace each record with one for each value of ``mapper(value)``, or of ``mapper(key, value)``."""
        stream = self._handle.then("KSTREAM-FLATMAPVALUES-", partial(StreamFlatMapValues, mapper), name)
        return self._on(stream.retyped(None, value_serde))

    def select_key(
        self,
        selector: Callable[[Any, Any], Any],
        *,
        vectorized: bool = False,
        key_serde: SerdeLike | None = None,
        name: str | None = None,
    ) -> Self:
        """Replace each key with ``selector(key, value)``; an operator that needs equal keys together repartitions.

        Args:
            selector: makes the new keys.
            vectorized: whether it takes columns, as for ``map_values``.
            key_serde: the serde of the new keys; the same unless given.
            name: the processor's name.
        """
        processor = VectorizedSelectKey if vectorized else StreamSelectKey
        stream = self._handle.then("KSTREAM-KEY-SELECT-", partial(processor, selector), name)
        return self._on(stream.retyped(key_serde, rekeyed=True))

    def peek(self, action: Callable[[Any, Any], object], *, name: str | None = None) -> Self:
        """Call ``action(key, value)`` for each record, and pass it on. After a failure a record may be seen again."""
        return self._on(self._handle.then("KSTREAM-PEEK-", partial(StreamPeek, action), name))

    def merge(self, *others: "StreamOperators", name: str | None = None) -> Self:
        """Merge all records of this stream and of ``others`` into one stream; there is no order between the streams."""
        return self._on(self._handle.merged(tuple(other._handle for other in others), name))

    def split(self, *, name: str | None = None) -> "BranchedKStream[Self]":
        """Begin to split the stream: each record goes to the first branch that matches it.

        >>> from millpond.processors import StreamsBuilder
        >>> numbers = StreamsBuilder().stream("numbers")
        >>> parts = (
        ...     numbers.split(name="sign-")
        ...     .branch(lambda key, value: value < 0, name="negative")
        ...     .default_branch(name="positive")
        ... )
        >>> sorted(parts)
        ['sign-negative', 'sign-positive']
        """
        prefix = name or self._handle.graph.new_name("KSTREAM-BRANCH-") + "-"
        return BranchedKStream(Split(self._handle, prefix), self._on)

    def process(
        self,
        supplier: Callable[[], Processor],
        *,
        stores: Sequence[str | StoreSpec] = (),
        name: str | None = None,
        keeps_key: bool = False,
        key_serde: SerdeLike | None = None,
        value_serde: SerdeLike | None = None,
    ) -> Self:
        """Send the records through a processor of your own (``RecordProcessor``, or ``Processor`` for whole batches).

        Args:
            supplier: makes the processor, one for each task; a class will do.
            stores: its stores: names of stores that are in the topology (``StreamsBuilder.add_state_store``,
                ``add_global_store``, or a table's), or descriptions of new ones.
            name: the node's name.
            keeps_key: promise that no record gets another key, so that nothing need be repartitioned later.
            key_serde: the serde of forwarded keys; the same unless given.
            value_serde: the serde of forwarded values; the same unless given.

        Raises:
            TopologyError: a store is not in the topology, or a new one's name is taken.
        """
        graph = self._handle.graph
        node = name or graph.new_name("KSTREAM-PROCESSOR-")
        stream = self._handle.then("", supplier, node)
        graph.use(node, stores)
        return self._on(stream.retyped(key_serde, value_serde, rekeyed=not keeps_key))

    def repartition(self, repartitioned: Repartitioned | None = None) -> Self:
        """Send the records through a repartition topic in any case, so that equal keys reach the same task.

        A record without a key is dropped and counted.
        """
        options = repartitioned or Repartitioned()
        return self._on(self._handle.repartitioned(options.name, options.key_serde, options.value_serde))

    def to(
        self, topic: str | TopicExtractor, produced: Produced | None = None, *, topics: Collection[str] = ()
    ) -> None:
        """Write the records to a sink, or each to a sink that a function chooses (KIP-303).

        Args:
            topic: the sink's topic, or ``extractor(key, value)`` or ``extractor(key, value, context)``, which returns
                it; ``context`` has the record's ``topic``, ``timestamp`` and ``headers`` (``RecordMetadata``).
            produced: the options for writing; the same for all topics.
            topics: all topics that the function may choose. Each is a sink like any other. A record for which it
                chooses another one is one that cannot be processed (``on_error``).

        Raises:
            TopologyError: neither the stream nor ``produced`` says how keys and values become bytes or columns, or
                there is a function without topics.

        >>> from millpond.processors import StreamsBuilder, TopologyDriver
        >>> builder = StreamsBuilder(value_serde="string")
        >>> builder.stream("orders").to(lambda key, value: f"{value}-orders", topics=["tea-orders", "milk-orders"])
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe_all("orders", [("a", "tea", 1), ("b", "milk", 2), ("c", "tea", 3)])
        ...     [record.key for record in driver.read("tea-orders")]
        ['a', 'c']
        """
        self._handle.write(topic, produced or Produced(), topics)
