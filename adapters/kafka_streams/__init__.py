"""State directories of Kafka Streams: the Java client's state in RocksDB, read into a store or a Parquet file.

Rule of this room: a source is only read. Every row is checked against its format. What cannot be read is named, with
store, files, the row's key in hex and what was expected; what a directory does not tell has to be said, not guessed.
"""

from millpond.adapters.kafka_streams.entries import Entry
from millpond.adapters.kafka_streams.importing import Import, Report
from millpond.adapters.kafka_streams.reading import KafkaStore, open_store
from millpond.adapters.kafka_streams.targets import ParquetTarget, StoreTarget

__all__ = ["Entry", "Import", "KafkaStore", "ParquetTarget", "Report", "StoreTarget", "open_store"]
