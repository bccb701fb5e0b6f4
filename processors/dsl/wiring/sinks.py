"""Sinks: records leave the topology by one topic, or each by a topic that a function chooses.

A choice is a processor with a sink behind it for each of the topics, so that a driver finds every topic
among its sinks before the first record comes.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from millpond.errors import MissingSerdeError, TopologyError
from millpond.processors.dsl.wiring.graph import TopologyGraph
from millpond.processors.options.records import Produced
from millpond.processors.runtime.nodes import SinkNode
from millpond.processors.streams.topic_choice import StreamToTopics

TopicExtractor: TypeAlias = Callable[..., str]
"""``extractor(key, value)`` or ``extractor(key, value, context)``; ``context`` is the record's ``RecordMetadata``."""


def add_sink(
    graph: TopologyGraph,
    parents: Iterable[str],
    topic: str | TopicExtractor,
    topics: Collection[str],
    produced: Produced,
) -> str:
    """Write the output of ``parents``; return the name of the node that takes it.

    Args:
        graph: the graph.
        parents: nodes.
        topic: the topic, or a function that chooses it.
        topics: the topics that the function may choose.
        produced: the options for writing.

    Raises:
        TopologyError: ``topics`` are missing, or there is no function that chooses among them, or a serde is missing.
    """
    name = produced.name or graph.new_name("KSTREAM-SINK-")
    declared = dict.fromkeys((topics,) if isinstance(topics, str) else topics)
    if isinstance(topic, str):
        if declared:
            raise TopologyError(
                f"sink {topic!r} is one topic, but topics={list(declared)} are those that a function may choose; leave "
                "topics out, or give the function: to(extractor, topics=[...])"
            )
        _add(graph, name, parents, topic, produced)
        return name
    if not callable(topic):
        raise TopologyError(f"a sink is a topic or a function that chooses one, not {topic!r}; give the topic's name")
    if not declared:
        raise TopologyError(
            f"sink {name!r} takes its topic from a function, but does not know which ones that may choose, each of "
            "which is an output of its own; name all of them: to(extractor, topics=['a', 'b'])"
        )
    sinks = {one: f"{name}-{one}" for one in declared}
    graph.add_processor(name, parents, partial(StreamToTopics, topic, sinks))
    for one, sink in sinks.items():
        _add(graph, sink, [name], one, produced)
    return name


def _add(graph: TopologyGraph, name: str, parents: Iterable[str], topic: str, produced: Produced) -> None:
    for serde, what in ((produced.key_serde, "key"), (produced.value_serde, "value")):
        if produced.schema is None and serde is None:
            raise MissingSerdeError(
                f"sink {topic!r} has no {what} serde: give Produced({what}_serde=...), or a DataFrame schema"
            )
    graph.add(SinkNode(name, tuple(parents), topic=topic, produced=replace(produced, name=name)))
