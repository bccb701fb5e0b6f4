"""The names of events that processors count rather than raise.

Rule of this module: one name has one meaning in all operators. A name begins with what became of the record:
``dropped`` records had no effect, ``passed`` records went on. ``waiting`` is a level: how much there is, not how often
something happened. docs/counters.md lists who counts what, and what to do about it.
"""

from enum import StrEnum


class CounterName(StrEnum):
    """The counters of Millpond's own processors and adapters; your own processors may use any other name.

    Attributes:
        column: the name as a column's, with underscores for hyphens.
    """

    DROPPED_NULL = "dropped-null"
    """A record without a key or without a value, where the operator needs both."""

    DROPPED_NULL_KEY = "dropped-null-key"
    """A record without a key, where the operator needs a key but accepts a null value."""

    DROPPED_BAD_KEY = "dropped-bad-key"
    """A record whose key its serde cannot write or read."""

    DROPPED_BAD_TIMESTAMP = "dropped-bad-timestamp"
    """A record whose timestamp is null or before 1970, or, of verbs, before the year 1."""

    DROPPED_FUTURE_TIMESTAMP = "dropped-future-timestamp"
    """A record whose timestamp is further ahead of the wall clock than ``max_ahead`` allows."""

    DROPPED_BAD_VALUE = "dropped-bad-value"
    """A record whose value its serde cannot read, or a row of verbs with a length of time beyond what it may be."""

    DROPPED_NEVER_VALID = "dropped-never-valid"
    """A row of a table of verbs that is valid from the year 9999 on, which stands for never."""

    DROPPED_NO_GAP = "dropped-no-gap"
    """A record whose own gap is null, zero or negative, where sessions have one of each record: it is in none."""

    DROPPED_LATE = "dropped-late"
    """A record whose windows or session had closed, once for each window; or one later than its lateness."""

    DROPPED_EXPIRED = "dropped-expired"
    """An update later than the grace period of its versioned store allows."""

    DROPPED_OUT_OF_ORDER = "dropped-out-of-order"
    """An update of a versioned table that is not its key's latest, and so has no result (KIP-914); or a change whose
    order is less than that of one which has come before."""

    DROPPED_STALE_RESPONSE = "dropped-stale-response"
    """An answer of a foreign-key join to a left row that has changed since; another answer is on its way."""

    DROPPED_USER_ERROR = "dropped-user-error"
    """A record for which a user's function failed, at the operator that called it; or a punctuation that failed."""

    PASSED_LATE = "passed-late"
    """A record that came after its grace period; it was not put in order, but went on at once."""

    BEYOND_HISTORY_RETENTION = "beyond-history-retention"
    """An as-of lookup for a time before the table's history, which found nothing."""

    WAITING = "waiting"
    """A level: the records or results that an operator holds back, for a grace period or the end of a window."""

    SET_BACK = "set-back"
    """A time that a task keeps, set back to the moment of ``reset_stream_time``."""

    REMOVED_BEYOND_RESET = "removed-beyond-reset"
    """An entry of a store from after the moment of ``reset_stream_time``."""

    @property
    def column(self) -> str:
        return self.value.replace("-", "_")
