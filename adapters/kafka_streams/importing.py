"""Bringing a store of Kafka Streams along: from its state directory to a target, with a report of every row.

Rule of this module: no row is left out silently. Each is written, or counted as expired, or the import ends with an
error and the target is not there.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from millpond.adapters.kafka_streams.conversion import Conversion
from millpond.adapters.kafka_streams.entries import Entries, Entry
from millpond.adapters.kafka_streams.reading import KafkaStore, open_store
from millpond.adapters.kafka_streams.targets import Content, Target
from millpond.errors import MissingArgumentError, PlaceTakenError, StoreKindError
from millpond.stores.encoding.serdes import BYTES, Serde
from millpond.stores.specs.store_spec import KeyForm, StoreKind


def observed_stream_time(kind: StoreKind, entries: Entries) -> int | None:
    """Return the stream time that the entries tell, the greatest time of any; None if there are none.

    The Java client keeps none on disk, and a store whose latest put was a delete may have seen more.
    """
    return max((_latest(kind, entry) for entry in entries), default=None)


def expired(kind: StoreKind, entry: Entry, horizon: int) -> bool:
    """Return whether an entry has expired: its window started, its session or version ended by ``horizon``."""
    if kind.key_form is KeyForm.WINDOW:
        return entry.start is not None and entry.start <= horizon
    return entry.end is not None and entry.end <= horizon


def _latest(kind: StoreKind, entry: Entry) -> int:
    times = (entry.start,) if kind.key_form is KeyForm.WINDOW else (entry.start, entry.end)
    return max(time for time in times if time is not None)


@dataclass
class Report:
    """The report of an import.

    Attributes:
        store: the store's name.
        kind: its kind.
        target: where it is now.
        tasks: by directory of a task, the offsets of its ``.checkpoint``; None where there is none.
        rows_read: rows of RocksDB. Those of a versioned store have several versions each.
        entries_read: what they say: values, windows, sessions, versions and tombstones.
        written: of these, those that are in the target now.
        tombstones: of those written, those that say that there is no value.
        expired: of those read, those that the retention leaves out. With those written, they are all.
        observed_stream_time: the stream time from which the retention counts; None without one.
    """

    store: str
    kind: str
    tasks: dict[str, dict[str, int] | None]
    target: str = ""
    rows_read: int = 0
    entries_read: int = 0
    written: int = 0
    tombstones: int = 0
    expired: int = 0
    observed_stream_time: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the same as JSON has it."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        offsets = [
            f"  {task}: " + ("no .checkpoint" if at is None else ", ".join(f"{name} at {n}" for name, n in at.items()))
            for task, at in self.tasks.items()
        ]
        return [
            f"store {self.store!r}, {self.kind}, of {len(self.tasks)} task(s):",
            *offsets,
            f"{self.rows_read:,} rows read, {self.entries_read:,} entries in them",
            f"{self.written:,} written to {self.target}, {self.tombstones:,} of them tombstones",
            f"{self.expired:,} left out as expired",
        ]


@dataclass(frozen=True)
class Import:
    """One import.

    Attributes:
        state_dir: the directory of an application, of a task, or of the store.
        store: the store's name, there and here.
        target: where it goes.
        kind: which kind it is, where its files do not tell.
        key_serde: how the Java client wrote the keys.
        value_serde: how it wrote the values.
        retention: of windows, sessions or versions, in milliseconds. What is older is left out. A Parquet file needs
            none, and then has all that is there.
        window_size: of window stores, in milliseconds.
        retain_duplicates: of window stores, whether they have each put, as those of joins of two streams do.
        without_checkpoint: also read what has no ``.checkpoint``, or one that cannot be read.
    """

    state_dir: Path
    store: str
    target: Target
    kind: StoreKind | None = None
    key_serde: Serde[Any] = field(default=BYTES)
    value_serde: Serde[Any] = field(default=BYTES)
    retention: int | None = None
    window_size: int | None = None
    retain_duplicates: bool = False
    without_checkpoint: bool = False

    def run(self) -> Report:
        """Read, check and write everything.

        Raises:
            ConfigurationError: an option is wrong or missing, or the target is there already.
            BackendInUseError: the application is running.
            CorruptStoreError: the directory is damaged, or a row is not what it should be.
            FormatError: the directory is in a format that is not known.
        """
        conversion = Conversion(self.store, self.key_serde, self.value_serde)
        with open_store(self.state_dir, self.store, self.kind, without_checkpoint=self.without_checkpoint) as source:
            content = self._content(source.kind, conversion)
            self._check_place(source)
            self.target.check(content)
            report = Report(self.store, source.kind.value, {str(part.task): part.offsets for part in source.parts})
            report.target = str(self.target.write(content, self._kept(source, report)))
            report.rows_read = source.rows_read
        return report

    def _check_place(self, source: KafkaStore) -> None:
        place = self.target.place.resolve()
        for above in (self.state_dir, *(part.task for part in source.parts)):
            if place.is_relative_to(above.resolve()):
                raise PlaceTakenError(
                    f"{place} lies in the state directory {above}, which is only read; choose another place"
                )

    def _content(self, kind: StoreKind, conversion: Conversion) -> Content:
        windows = kind.key_form is KeyForm.WINDOW
        if windows and self.window_size is None:
            raise MissingArgumentError(
                f"store {self.store!r} has windows, and its files do not tell how long they are; say it with "
                "--window-size, as in --window-size '1 hour'"
            )
        for option, given, of_kind in (
            ("--window-size", self.window_size is not None, windows),
            ("--retain-duplicates", self.retain_duplicates, windows),
            ("--retention", self.retention is not None, windows or kind.versioned or kind.in_segments),
        ):
            if given and not of_kind:
                raise StoreKindError(f"store {self.store!r} of kind {kind.value} has no {option}; leave it out")
        return Content(self.store, kind, conversion, self.retention, self.window_size, self.retain_duplicates)

    def _kept(self, source: KafkaStore, report: Report) -> Entries:
        horizon = None
        if self.retention is not None:
            report.observed_stream_time = observed_stream_time(source.kind, source.entries())
            if report.observed_stream_time is not None:
                horizon = report.observed_stream_time - self.retention
        for entry in source.entries():
            self._check_sequence(entry)
            report.entries_read += 1
            if horizon is not None and expired(source.kind, entry, horizon):
                report.expired += 1
                continue
            report.written += 1
            report.tombstones += entry.value is None
            yield entry

    def _check_sequence(self, entry: Entry) -> None:
        if entry.sequence and not self.retain_duplicates:
            raise MissingArgumentError(
                f"store {self.store!r} retains duplicates: the row of key 0x{entry.key.hex()} and time {entry.start} "
                f"has the sequence {entry.sequence}; say so with --retain-duplicates"
            )
