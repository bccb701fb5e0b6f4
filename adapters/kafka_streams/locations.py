"""The locations of a store's files in a state directory, and of what stands beside them.

::

    <state.dir>/<application.id>/<task>/.checkpoint                     offsets up to which the files have the changelog
    <state.dir>/<application.id>/<task>/rocksdb/<store>/                key-value and versioned stores
    <state.dir>/<application.id>/<task>/<store>/<store>.<start>/        window and session stores, one for each segment
    <state.dir>/<application.id>/global/...                             the same for global tables

``<task>`` is the number of the sub-topology and that of the partition, ``0_1``.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.adapters.kafka_streams.database import is_database, refuse_locked
from millpond.errors import (
    AmbiguousError,
    CorruptStoreError,
    FormatError,
    KafkaStreamsStateError,
    StateDirectoryError,
    UnknownNameError,
)

CHECKPOINT: Final = ".checkpoint"
_LOCK: Final = ".lock"
_ROCKSDB: Final = "rocksdb"
_TASK: Final = re.compile(r"(?:.+__)?(\d+)_(\d+)|global")
_VERSION: Final = "0"
_IF_KNOWN: Final = "or, if you know that the store is complete, say --without-checkpoint"
_WRITE_ANEW: Final = f"delete it, start the application, which writes it anew, and stop it, {_IF_KNOWN}"
_NUMBER: Final = re.compile(r"-?\d{1,18}", re.ASCII)


@dataclass(frozen=True)
class Segment:
    """The directory of one segment, and the time at which the segment starts."""

    directory: Path
    start: int


@dataclass(frozen=True)
class StorePart:
    """The files of a store in one task.

    Attributes:
        store: its name.
        task: the directory of the task.
        directory: of the store.
        segments: where it has segments of time, these, oldest first; None where all is in one RocksDB.
        offsets: by topic and partition, how far the files have the changelog; None where it is unknown.
    """

    store: str
    task: Path
    directory: Path
    segments: tuple[Segment, ...] | None
    offsets: dict[str, int] | None


def find_parts(state_dir: Path, store: str, *, without_checkpoint: bool = False) -> list[StorePart]:
    """Return the files of a store in the directory of an application, of a task, or of the store itself.

    Args:
        state_dir: the directory.
        store: the store's name.
        without_checkpoint: also read what has no ``.checkpoint``, or one that cannot be read.

    Raises:
        ConfigurationError: the store is not there, or in several sub-topologies.
        BackendInUseError: the application is running.
        CorruptStoreError: there is no ``.checkpoint``, or one that cannot be read.
        FormatError: segments have names of releases before 2.0, or a ``.checkpoint`` is of a version that is not known.
    """
    if not state_dir.is_dir():
        raise StateDirectoryError(f"there is no directory {state_dir}; give that of an application, a task or a store")
    own = _own_task(state_dir, store)
    if own is not None:
        return [_part(store, own, state_dir, without_checkpoint)]
    tasks = _tasks(state_dir)
    found = [(task, directory) for task in tasks for directory in _directories(task, store)]
    if not found:
        names = sorted({name for task in tasks for name in _names(task)})
        raise UnknownNameError(
            f"there is no store {store!r} in {state_dir}, "
            + (f"only {', '.join(names)}" if names else "nor any other that lies in RocksDB")
        )
    _check_one(state_dir, store, found)
    return [_part(store, task, directory, without_checkpoint) for task, directory in found]


def _own_task(state_dir: Path, store: str) -> Path | None:
    """Return the directory of the task, if ``state_dir`` is that of the store itself; it may be gone."""
    if state_dir.name != store or not (is_database(state_dir) or _segment_names(state_dir, store)):
        return None
    above = state_dir.absolute().parent
    return above.parent if above.name == _ROCKSDB else above


def _tasks(state_dir: Path) -> list[Path]:
    if _TASK.fullmatch(state_dir.name) or (state_dir / CHECKPOINT).exists() or (state_dir / _ROCKSDB).is_dir():
        return [state_dir]
    return sorted(path for path in state_dir.iterdir() if path.is_dir() and _TASK.fullmatch(path.name))


def _directories(task: Path, store: str) -> list[Path]:
    places = [task / _ROCKSDB / store, task / store]
    return [place for place in places if is_database(place) or _segment_names(place, store)]


def _names(task: Path) -> list[str]:
    folders = [path for place in (task, task / _ROCKSDB) if place.is_dir() for path in place.iterdir()]
    return [path.name for path in folders if path.is_dir() and _directories(task, path.name)]


def _segment_names(directory: Path, store: str) -> list[str]:
    """Return the names of all folders in a store's directory, if at least one of them is a segment's."""
    names = [path.name for path in directory.iterdir() if path.is_dir()] if directory.is_dir() else []
    return names if any(re.match(re.escape(store) + r"[-.:]\d", name) for name in names) else []


def _check_one(state_dir: Path, store: str, found: list[tuple[Path, Path]]) -> None:
    """Refuse directories, each with that of its task, of several sub-topologies, or of which a task has two."""
    twice = len({task for task, _ in found}) < len(found)
    stores: dict[tuple[str, bool], list[str]] = {}
    for task, directory in found:
        which = task.name.rpartition("_")[0], twice and directory.parent.name == _ROCKSDB
        stores.setdefault(which, []).append(str(directory))
    if len(stores) > 1:
        places = "; one in ".join(", ".join(directories) for directories in stores.values())
        raise AmbiguousError(
            f"there are several stores {store!r}: one in {places}; give the directory of one of them, or, where it has "
            f"several, a copy of {state_dir} without those of the others"
        )


def _part(store: str, task: Path, directory: Path, without_checkpoint: bool) -> StorePart:
    for lock in (task / _LOCK, task.parent / _LOCK):
        refuse_locked(lock, store)
    try:
        offsets = _offsets(task / CHECKPOINT, store)
    except (CorruptStoreError, FormatError):
        if not without_checkpoint:
            raise
        offsets = None
    names = _segment_names(directory, store)
    segments = tuple(sorted((_segment(directory / name, store) for name in names), key=lambda one: one.start))
    return StorePart(store, task, directory, segments if names else None, offsets)


def _segment(directory: Path, store: str) -> Segment:
    named = re.fullmatch(re.escape(store) + r"([-.:])(\d{1,18})", directory.name, re.ASCII)
    if named is None:
        raise KafkaStreamsStateError(
            f"store {store!r}: {directory} is no segment: expected {store}.<start in milliseconds>; move it away, as "
            "Kafka Streams has not put it there"
        )
    if named[1] != ".":
        raise KafkaStreamsStateError(
            f"store {store!r}: the segment {directory} has a name of an early release; start the application once with "
            "release 2.0 or later of Kafka Streams, which renames it, and stop it"
        )
    return Segment(directory, int(named[2]))


def _offsets(path: Path, store: str) -> dict[str, int]:
    """Return the offsets in a ``.checkpoint``: the version 0, a line count, lines of topic, partition and offset."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError as error:
        raise KafkaStreamsStateError(
            f"store {store!r}: there is no {path}: the application was not closed cleanly, or the store has no "
            f"changelog, or this is a part of a copy; start the application once and stop it, {_IF_KNOWN}"
        ) from error
    except (OSError, UnicodeError) as error:
        raise KafkaStreamsStateError(f"store {store!r}: {path} cannot be read: {error}; {_WRITE_ANEW}") from error
    if lines and lines[0] != _VERSION:
        raise KafkaStreamsStateError(
            f"store {store!r}: {path} is of version {lines[0][:80]!r}, and this release of Millpond knows {_VERSION}; "
            f"read it with a newer one, {_IF_KNOWN}"
        )
    try:
        rows = [line.split() for line in lines[2:]]
        offsets = {f"{topic}-{_number(partition)}": _number(offset) for topic, partition, offset in rows}
        if len(offsets) != _number(lines[1]):
            raise ValueError(f"it has {len(offsets)} offsets, not {lines[1]}")
    except (ValueError, IndexError) as error:
        raise KafkaStreamsStateError(
            f"store {store!r}: {path} is damaged ({error}): expected a number of lines, and lines of topic, partition "
            f"and offset; {_WRITE_ANEW}"
        ) from error
    return offsets


def _number(text: str) -> int:
    """Return a number of a ``.checkpoint``, of 64 bits.

    Raises:
        ValueError: it is none.
    """
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text[:80]!r} is no number of 64 bits")
    return int(text)
