"""The workloads in Flink SQL, and the tables and the settings with which they run.

Rule of this module: it is text. A query is written as somebody would write it who wants the most of Flink, with the
tables of ``tables_of``, and gives the columns that Millpond gives; the times of windows are Flink's timestamps. A topic
is a stream of rows: where its rows are updates of a table, the query keeps the latest of each key.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.bench.spark.inputs import Source
from millpond.bench.spark.shapes import Scale

CHECKPOINT_SECONDS: Final = 2
"""The seconds between checkpoints: about as often as Millpond commits micro-batches of a million rows."""

STATE_BACKENDS: Final[Mapping[str, str]] = {"flink_heap": "hashmap", "flink_rocksdb": "rocksdb"}
"""Flink's names of state backends, by the names of the contenders."""

_BOUND_TO: Final = ("jobmanager.bind-host", "taskmanager.bind-host", "rest.bind-address", "rest.address")
"""The settings by which Flink would let others in."""

_TYPES: Final = {"string": "STRING", "long": "BIGINT", "double": "DOUBLE"}


@dataclass(frozen=True)
class FlinkQuery:
    """The query that Flink runs.

    Attributes:
        select: the query.
        versioned: topics whose rows are versions of their keys, to be looked up as of a time.
        table: the answer is a table, of whose changes any number may come before the last of a key.
        timed: event time is of use; if not, Flink is spared it.
    """

    select: Callable[[Scale], str]
    versioned: tuple[str, ...] = ()
    table: bool = False
    timed: bool = True


@dataclass(frozen=True)
class FlinkContender:
    """A query of Flink on one of its state backends.

    Attributes:
        query: what is run.
        state_backend: where its state is, in the word of Flink.
    """

    query: FlinkQuery
    state_backend: str


@dataclass(frozen=True)
class Table:
    """A topic in Flink.

    Attributes:
        topic: its name, also of the table.
        columns: names and SQL types of what a row has.
        definition: makes the table, given one named ``source`` with these columns.
    """

    topic: str
    columns: tuple[tuple[str, str], ...]
    definition: str

    @property
    def source(self) -> str:
        """The table that the definition is made from."""
        return _source(self.topic)


def tables_of(query: FlinkQuery, topics: Sequence[Source]) -> list[Table]:
    """Return the tables of the topics, with the event time of their rows, whose watermark no row is behind."""
    return [_table(topic, query) for topic in topics]


def settings_of(state_backend: str, cores: int, directory: Path) -> dict[str, str]:
    """Return the settings of a job: exactly once, with all cores, and with what makes Flink quick at any such work.

    Args:
        state_backend: Flink's name of it.
        cores: parallel tasks of each operator.
        directory: gets checkpoints and local state.
    """
    return {
        "execution.runtime-mode": "streaming",
        "parallelism.default": str(cores),
        "taskmanager.numberOfTaskSlots": str(cores),
        "taskmanager.memory.managed.size": "1g",
        **dict.fromkeys(_BOUND_TO, "localhost"),
        "io.tmp.dirs": str(directory),
        "state.backend.type": state_backend,
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.interval": f"{CHECKPOINT_SECONDS} s",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": (directory / "checkpoints").as_uri(),
        "restart-strategy.type": "none",
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "1 s",
        "table.exec.mini-batch.size": "50000",
    }


def count(scale: Scale) -> str:
    """Return the query that counts events per key."""
    return "SELECT `key`, COUNT(*) AS `value` FROM events GROUP BY `key`"


def temporal_join(scale: Scale) -> str:
    """Return the query that joins each event with its key's rate as of the event's time."""
    return (
        "SELECT e.`key`, e.`at` AS `timestamp`, e.amount, r.rate FROM events AS e "
        "LEFT JOIN rates FOR SYSTEM_TIME AS OF e.`time` AS r ON e.`key` = r.`key`"
    )


def table_join(scale: Scale) -> str:
    """Return the query that joins two tables, each of which keeps the latest row of a key by its time."""
    return (
        "SELECT e.`key`, GREATEST(e.`at`, r.`at`) AS `timestamp`, e.amount, r.rate "
        f"FROM {_latest('events')} AS e JOIN {_latest('rates')} AS r ON e.`key` = r.`key`"
    )


def stream_join(scale: Scale) -> str:
    """Return the pairs of rows of two streams that are close in time."""
    return _interval_join(scale, "JOIN")


def stream_join_left(scale: Scale) -> str:
    """Return the query of the left join, which keeps the events that find nobody."""
    return _interval_join(scale, "LEFT JOIN")


def window(scale: Scale) -> str:
    """Return the query that counts events per key and tumbling window, once the window is closed."""
    windows = f"TUMBLE(TABLE events, DESCRIPTOR(`time`), {_interval(scale.window)})"
    return _counted_in(windows)


def session(scale: Scale) -> str:
    """Return the query that counts events per key and closed session; Flink's end a gap after their last row."""
    windows = f"SESSION(TABLE events PARTITION BY `key`, DESCRIPTOR(`time`), {_interval(scale.gap)})"
    return _counted_in(windows, f" - {_interval(scale.gap)}")


def foreign_key(scale: Scale) -> str:
    """Return the query that joins each order with its customer's rate."""
    return (
        "SELECT o.`key`, GREATEST(o.`at`, c.`at`) AS `timestamp`, o.amount, c.rate "
        f"FROM {_latest('orders')} AS o JOIN {_latest('customers')} AS c ON o.customer = c.`key`"
    )


def _table(topic: Source, query: FlinkQuery) -> Table:
    columns = tuple((name, _TYPES[kind]) for name, kind in (column.split() for column in topic.schema.split(", ")))
    parts = ["`time` AS TO_TIMESTAMP_LTZ(`at`, 3)", "WATERMARK FOR `time` AS `time`"] if query.timed else []
    if topic.name in query.versioned:
        parts.append("PRIMARY KEY (`key`) NOT ENFORCED")
    more = f" ({', '.join(parts)})" if parts else ""
    definition = f"CREATE TEMPORARY TABLE {topic.name}{more} LIKE {_source(topic.name)}"
    return Table(topic.name, columns, definition)


def _source(topic: str) -> str:
    return f"{topic}_rows"


def _latest(topic: str) -> str:
    numbered = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY `key` ORDER BY `time` DESC) AS place FROM {topic}"
    return f"(SELECT * FROM ({numbered}) WHERE place = 1)"


def _interval_join(scale: Scale, join: str) -> str:
    reach = _interval(scale.reach)
    return (
        "SELECT e.`key`, COALESCE(GREATEST(e.`at`, r.`at`), e.`at`) AS `timestamp`, e.amount, r.rate "
        f"FROM events AS e {join} rates AS r ON e.`key` = r.`key` "
        f"AND r.`time` BETWEEN e.`time` - {reach} AND e.`time` + {reach}"
    )


def _counted_in(windows: str, earlier: str = "") -> str:
    return (
        f"SELECT `key`, window_start, window_end{earlier} AS window_end, COUNT(*) AS `value` FROM TABLE({windows}) "
        "GROUP BY `key`, window_start, window_end"
    )


def _interval(millis: int) -> str:
    """Return a length of time; Flink takes no more than three digits of a unit."""
    seconds, rest = divmod(millis, 1000)
    days, seconds = divmod(seconds, 24 * 60 * 60)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:03d}"
    return f"INTERVAL '{days} {clock}' DAY(3) TO SECOND(3)"
