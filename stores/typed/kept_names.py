"""The names under which the library keeps metadata beside the rows of stores: all of them, and no others.

Rule of this module: what the library keeps, it keeps under a name of this list, and what users put is refused under
one. A name that ends with ``-`` stands for all that begin with it: several processors on a store keep one each.
"""

from typing import Final

from millpond.stores.encoding.keys import COMMIT_ROW, LAYOUT_ROW, METADATA, TERMS_ROW

ROWS: Final = {
    row[len(METADATA) :].decode(): what
    for row, what in {
        COMMIT_ROW: "the local copy's position",
        LAYOUT_ROW: "the layout of the rows",
        TERMS_ROW: "the terms of the rows",
    }.items()
}
"""The names of rows that are no metadata to users."""

KEPT: Final = {
    "observed_stream_time": "the stream time that the store has seen",
    "expired_until": "the time up to which entries have expired",
    "expiry_stream_time": "the time by which entries expire",
    "expiry_timed_until": "the row up to which entries have timers",
    "segment_interval": "the length of a segment",
    "sequence": "the number of the last put",
    "totals": "the number and size of what is held back",
    "stream-time": "the stream time of an operator",
    "stream-time-": "the stream time of an operator",
    "waiting": "how much waits",
    "waiting-": "how much waits",
    "watermark": "the time up to which records have been processed",
    "completion-": "the time up to which windows have come out",
    "changed-": "windows that have not come out as they are",
    "reset": "the moment to which the store was set back",
    "task-time-": "the stream time of the task",
    "punctuation-": "when a schedule fires next",
}
"""The metadata of the library, by its name."""


def keeps(name: str) -> str | None:
    """Return words for what the library keeps under a name; None if it keeps nothing there.

    >>> keeps("waiting-2"), keeps("reset"), keeps("reset-2")
    ('how much waits', 'the moment to which the store was set back', None)
    """
    of_many = (what for one, what in KEPT.items() if one.endswith("-") and name.startswith(one))
    return ROWS.get(name) or KEPT.get(name) or next(of_many, None)
