"""Stream processing: records, topologies, the DSL, joins, aggregations, windows, tasks and the in-process driver."""

from millpond.processors.dsl.branched import BranchedKStream
from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.dsl.streams_and_tables import (
    CogroupedKStream,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    SessionWindowedKStream,
    TimeWindowedKStream,
)
from millpond.processors.dsl.topology_builder import TopologyBuilder
from millpond.processors.dsl.wiring.global_table import GlobalKTable
from millpond.processors.options.cumulative_windows import CumulativeWindows
from millpond.processors.options.grouping import cube, grouping_sets, rollup
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.joins import Joined, StreamJoined
from millpond.processors.options.materialized import Materialized
from millpond.processors.options.on_error import OnError
from millpond.processors.options.order import Order
from millpond.processors.options.records import Consumed, Grouped, Produced, Repartitioned
from millpond.processors.options.suppressed import Suppressed
from millpond.processors.options.versioned_table import VersionedTable
from millpond.processors.options.windowed_serdes import SessionWindowedSerde, TimeWindowedSerde
from millpond.processors.options.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.current_record import RecordMetadata
from millpond.processors.runtime.failures import DeadLetter
from millpond.processors.runtime.order.time_order import merge
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.runtime.punctuation import Punctuation, PunctuationType
from millpond.processors.runtime.record_processor import RecordProcessor
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.runtime.tasks.driver import TopologyDriver
from millpond.processors.runtime.tasks.records import Record
from millpond.processors.runtime.tasks.task import Task
from millpond.processors.runtime.topology import Topology

__all__ = [
    "Batch",
    "BranchedKStream",
    "CogroupedKStream",
    "Columns",
    "Consumed",
    "CounterName",
    "CumulativeWindows",
    "DeadLetter",
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
    "OnError",
    "Order",
    "Processor",
    "ProcessorContext",
    "Produced",
    "Punctuation",
    "PunctuationType",
    "Record",
    "RecordMetadata",
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
    "TopologyBuilder",
    "TopologyDriver",
    "VersionedTable",
    "cube",
    "grouping_sets",
    "merge",
    "rollup",
]
