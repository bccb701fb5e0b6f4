"""The expiry of entries by a store's retention, as Kafka Streams has it.

Stream time is the greatest time of all entries. The Java client keeps none on disk, and a store whose latest put was a
delete may have seen a greater one.
"""

from millpond.adapters.kafka_streams.entries import Entries, Entry
from millpond.stores.specs.store_spec import KeyForm, StoreKind


def observed_stream_time(kind: StoreKind, entries: Entries) -> int | None:
    """Return the stream time that the entries tell; None if there are none."""
    return max((_latest(kind, entry) for entry in entries), default=None)


def expired(kind: StoreKind, entry: Entry, horizon: int) -> bool:
    """Return whether an entry has expired: its window started, its session or version ended by ``horizon``."""
    if kind.key_form is KeyForm.WINDOW:
        return entry.start is not None and entry.start <= horizon
    return entry.end is not None and entry.end <= horizon


def _latest(kind: StoreKind, entry: Entry) -> int:
    times = (entry.start,) if kind.key_form is KeyForm.WINDOW else (entry.start, entry.end)
    return max(time for time in times if time is not None)
