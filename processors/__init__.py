"""What a stream does: records, topologies, the DSL, joins, aggregations, windows, tasks and the in-process driver."""

from millpond.processors.batch import Batch
from millpond.processors.branched import BranchedKStream
from millpond.processors.builder import StreamsBuilder
from millpond.processors.cogroup import CogroupedKStream
from millpond.processors.config import Consumed, Grouped, Joined, Materialized, Produced, Repartitioned, StreamJoined
from millpond.processors.driver import Record, TopologyDriver
from millpond.processors.global_table import GlobalKTable
from millpond.processors.grouped import KGroupedStream
from millpond.processors.grouped_table import KGroupedTable
from millpond.processors.join_windows import JoinWindows
from millpond.processors.kstream import KStream
from millpond.processors.ktable import KTable
from millpond.processors.merge import merge
from millpond.processors.process import RecordProcessor
from millpond.processors.processor import Processor, ProcessorContext, Punctuation, PunctuationType
from millpond.processors.suppressed import Suppressed
from millpond.processors.task import Task
from millpond.processors.topology import Subtopology, Topology
from millpond.processors.windowed_serdes import SessionWindowedSerde, TimeWindowedSerde
from millpond.processors.windowed_stream import SessionWindowedKStream, TimeWindowedKStream
from millpond.processors.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows

__all__ = [
    "Batch",
    "BranchedKStream",
    "CogroupedKStream",
    "Consumed",
    "EmitStrategy",
    "GlobalKTable",
    "Grouped",
    "JoinWindows",
    "Joined",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "Materialized",
    "Processor",
    "ProcessorContext",
    "Produced",
    "Punctuation",
    "PunctuationType",
    "Record",
    "RecordProcessor",
    "Repartitioned",
    "SessionWindows",
    "SessionWindowedKStream",
    "SessionWindowedSerde",
    "SlidingWindows",
    "StreamJoined",
    "StreamsBuilder",
    "Subtopology",
    "Suppressed",
    "Task",
    "TimeWindowedKStream",
    "TimeWindowedSerde",
    "TimeWindows",
    "Topology",
    "TopologyDriver",
    "merge",
]
