"""What a stream does: records, topologies, the DSL, joins, aggregations, windows, tasks and the in-process driver."""

from millpond.processors.batch import Batch
from millpond.processors.builder import StreamsBuilder
from millpond.processors.config import Consumed, Grouped, Joined, Materialized, Produced
from millpond.processors.driver import Record, TopologyDriver
from millpond.processors.grouped import KGroupedStream
from millpond.processors.kstream import KStream
from millpond.processors.ktable import KTable
from millpond.processors.processor import Processor, ProcessorContext
from millpond.processors.task import Task
from millpond.processors.topology import Subtopology, Topology

__all__ = [
    "Batch",
    "Consumed",
    "Grouped",
    "Joined",
    "KGroupedStream",
    "KStream",
    "KTable",
    "Materialized",
    "Processor",
    "ProcessorContext",
    "Produced",
    "Record",
    "StreamsBuilder",
    "Subtopology",
    "Task",
    "Topology",
    "TopologyDriver",
]
