"""The names of what processors count instead of raising it.

Rule of this module: one name for one meaning, whoever counts it. A name says first what became of the record:
``dropped`` had no effect, ``passed`` went on. docs/counters.md lists who counts what, and what to do about it.
"""

from enum import StrEnum


class CounterName(StrEnum):
    """A count of Millpond's own processors and adapters; processors of users may count under any other name.

    Attributes:
        column: the same as the name of a column, where hyphens are no part of names.
    """

    DROPPED_NULL = "dropped-null"
    """A record without a key or without a value, where the operator needs both."""

    DROPPED_NULL_KEY = "dropped-null-key"
    """A record without a key, where a null value would have been welcome."""

    DROPPED_BAD_KEY = "dropped-bad-key"
    """A record whose key its serde cannot write or read."""

    DROPPED_BAD_TIMESTAMP = "dropped-bad-timestamp"
    """A record whose timestamp is null or negative."""

    DROPPED_BAD_VALUE = "dropped-bad-value"
    """A record whose value its serde cannot read."""

    DROPPED_LATE = "dropped-late"
    """A record whose window or session had been closed; counted once for each such window."""

    DROPPED_EXPIRED = "dropped-expired"
    """An update older than the grace of the versioned store that was to take it."""

    DROPPED_OUT_OF_ORDER = "dropped-out-of-order"
    """An update of a versioned table that is not its key's latest, which has no result (KIP-914)."""

    DROPPED_STALE_RESPONSE = "dropped-stale-response"
    """An answer of a foreign-key join to a left row that has changed since; another answer is on its way."""

    PASSED_LATE = "passed-late"
    """A record that came after its grace period; it was not put in order, but went on at once."""

    BEYOND_HISTORY_RETENTION = "beyond-history-retention"
    """A lookup as of a time that the table's history does not reach, which found nothing."""

    @property
    def column(self) -> str:
        return self.value.replace("-", "_")
