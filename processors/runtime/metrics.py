"""The names of what a task measures in a micro-batch.

Rule of this module: late, dropped and waiting records are counted (``millpond.processors.runtime.counters``) and not
measured once more. The metrics of stores are in ``millpond.metrics``.
"""

from enum import StrEnum


class TaskMetric(StrEnum):
    """The metrics of a task, and of what sends records to tasks."""

    RECORDS_IN = "records.in"
    """The records that came in; a partial aggregate counts as one."""

    RECORDS_OUT = "records.out"
    """The records that went out, to sinks and to repartition topics."""

    STREAM_TIME = "stream.time"
    """The greatest timestamp that the task has seen, as far as it and its stores know: microseconds since 1970."""

    STREAM_LAG = "stream.lag"
    """By how many microseconds that is behind the wall clock; negative if it is ahead."""

    LATENESS = "lateness.largest"
    """By how many microseconds the latest of the records that were left out for their time was behind stream time."""

    TASK_DURATION = "task.duration"
    """The time from the first to the last step of a task, with the exchange of rows with Spark."""

    PROCESS_DURATION = "process.duration"
    """The time in which records were processed."""

    FLUSH_DURATION = "flush.duration"
    """The time in which operators forwarded what they had held back, before the commit."""

    CACHE_UPDATES = "cache.updates"
    """Of an operator with caching: the updates that it made."""

    CACHE_HITS = "cache.hits"
    """Of those, the ones that a later update of the same key has replaced before they were forwarded."""
