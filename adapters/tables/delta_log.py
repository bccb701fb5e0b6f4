"""The log of a table of Delta Lake: which files a version has.

Rule of this module: it reads what the protocol of Delta Lake says, and refuses what it does not know. A version is the
newest checkpoint up to it, if there is one, and the commits behind that. Of a checkpoint it reads the fields that tell
something here: what a table has statistics of may be what Python has not.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.adapters.tables.spark_schema import UNREADABLE, arrow_schema
from millpond.errors import CorruptFileError, FormatError, LookupTableError, MissingTableFileError, TableFormatError
from millpond.masking import quoted
from millpond.stores.durability.storage.storage import Storage

LOG: Final = "_delta_log"

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_SECOND: Final = re.compile(r"(\d{20})\.checkpoint\.[0-9A-Fa-f-]{36}\.(?:json|parquet)")
"""A checkpoint of the second kind, which names other files."""
_ELSEWHERE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
"""The beginning of a path that is not below the table's directory."""
_VECTOR: Final = ("storageType", "pathOrInlineDv", "offset")
"""The fields that tell a deletion vector from others."""
_FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "protocol": ("minReaderVersion", "readerFeatures"),
    "metaData": ("schemaString", "partitionColumns", "configuration"),
    "add": ("path", "partitionValues", *(f"deletionVector.{name}" for name in _VECTOR)),
    "remove": ("path", *(f"deletionVector.{name}" for name in _VECTOR)),
}
"""The actions that are read, and what of them."""
_FEATURES: Final = frozenset({"columnMapping", "deletionVectors", "timestampNtz", "vacuumProtocolCheck"})
"""The table features that this reader knows, if only to refuse what makes use of them."""

_READER_VERSION: Final = 3
_MAPPING: Final = "delta.columnMapping.mode"


@dataclass(frozen=True)
class Added:
    """A file that an action has added.

    Attributes:
        path: where it is, as a URI has it.
        values: as texts, the values of columns that the file does not have.
        deletes: whether some of its rows are deleted by what is in another file.
    """

    path: str
    values: Mapping[str, str | None]
    deletes: bool


@dataclass
class Snapshot:
    """One version of a table.

    Attributes:
        schema: the columns, in JSON.
        partitions: those whose values are not in the files.
        files: by what tells each from others: its path and its deletion vector.
    """

    schema: str = ""
    partitions: Sequence[str] = ()
    files: dict[tuple[str, Any], Added] = field(default_factory=dict)


@dataclass(frozen=True)
class DeltaLog:
    """The log of the table in a directory.

    Attributes:
        storage: the directory.
    """

    storage: Storage

    def newest(self) -> int:
        """Return the newest version.

        Raises:
            ConfigurationError: there is no table of Delta Lake.
        """
        versions = [version for name in self._names() for version in [_version(name)] if version is not None]
        if not versions:
            raise LookupTableError(f"{self.storage.describe(LOG)} has no log of Delta Lake; give the table's directory")
        return max(versions)

    def snapshot(self, version: int) -> Snapshot:
        """Return a version of the table.

        Raises:
            FormatError: the table has something that only newer readers know.
            MissingFileError: the log does not reach back to it any more.
            CorruptFileError: the log is damaged.
        """
        names = self._names()
        at, checkpoint = _checkpoint(names, version)
        snapshot = Snapshot()
        for name in checkpoint:
            self._apply(snapshot, name, self._rows(name))
        there = set(names)
        for number in range(at + 1, version + 1):
            name = f"{number:020d}.json"
            if name not in there:
                self._check_checkpoints(names, range(number, version + 1))
                raise MissingTableFileError(
                    f"{self.storage.describe(f'{LOG}/{name}')} does not exist, which the version {version} of the "
                    "table needs; have the table keep its log longer (delta.logRetentionDuration)"
                )
            self._apply(snapshot, name, self._lines(name))
        if not snapshot.schema:
            raise CorruptFileError(f"{self.storage.describe(LOG)} tells no columns for the version {version}")
        return snapshot

    def _names(self) -> Sequence[str]:
        return [file.path.rpartition("/")[2] for file in self.storage.list(LOG)]

    def _lines(self, name: str) -> Iterator[Any]:
        """Yield the actions of a commit."""
        content = self.storage.read(f"{LOG}/{name}")
        try:
            for line in content.splitlines():
                if line.strip():
                    yield json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorruptFileError(f"{self.storage.describe(f'{LOG}/{name}')} cannot be read: {error}") from error

    def _rows(self, name: str) -> Iterator[Mapping[str, Any]]:
        """Yield the actions of a checkpoint."""
        path = f"{LOG}/{name}"
        try:
            with self.storage.reading(path) as stream:
                file = pq.ParquetFile(stream)
                wanted = [f"{action}.{name}" for action, names in _FIELDS.items() for name in names]
                for batch in file.iter_batches(columns=wanted):
                    yield from batch.to_pylist()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptFileError(f"{self.storage.describe(path)} cannot be read: {quoted(error)}") from error

    def _apply(self, snapshot: Snapshot, name: str, actions: Iterator[Any]) -> None:
        """Take over what a file of the log says.

        Raises:
            CorruptFileError: an action is not as the protocol has it.
        """
        for action in actions:
            try:
                self._act(snapshot, action)
            except UNREADABLE as error:
                raise CorruptFileError(
                    f"{self.storage.describe(f'{LOG}/{name}')} has an action that is none of Delta Lake "
                    f"({type(error).__name__}: {quoted(error)})"
                ) from error

    def _act(self, snapshot: Snapshot, action: Mapping[str, Any]) -> None:
        told = {what: said for what in _FIELDS if (said := action.get(what)) is not None}
        if "protocol" in told:
            self._check_protocol(told["protocol"])
        if "metaData" in told:
            meta = told["metaData"]
            self._check_mapping(dict(meta.get("configuration") or {}))
            arrow_schema(meta["schemaString"])  # what cannot be read is found here, where its file is known
            snapshot.schema = meta["schemaString"]
            snapshot.partitions = [_text(one) for one in meta["partitionColumns"] or ()]
        if "remove" in told:
            snapshot.files.pop(_file(told["remove"]), None)
        if "add" in told:
            snapshot.files[_file(told["add"])] = _added(told["add"])

    def _check_protocol(self, protocol: Mapping[str, Any]) -> None:
        """Refuse a table that only newer readers know.

        Raises:
            FormatError: it is one.
        """
        unknown = sorted(set(protocol.get("readerFeatures") or ()) - _FEATURES)
        if protocol["minReaderVersion"] > _READER_VERSION or unknown:
            raise self._unknown(", ".join(unknown) or f"the reader version {protocol['minReaderVersion']}")

    def _check_checkpoints(self, names: Sequence[str], versions: range) -> None:
        """Refuse a table that is known by checkpoints of the second kind alone.

        Raises:
            FormatError: one is of one of the versions.
        """
        if any(match is not None and int(match[1]) in versions for match in map(_SECOND.fullmatch, names)):
            raise self._unknown("v2Checkpoint")

    def _unknown(self, what: str) -> FormatError:
        return TableFormatError(
            f"the table of Delta Lake in {self.storage.describe('')} needs {what} to be read, which is not known "
            f"here; drop it from the table (ALTER TABLE ... DROP FEATURE {what}), or read the table by Spark and "
            "join it by asof_join"
        )

    def _check_mapping(self, configuration: Mapping[str, str]) -> None:
        """Refuse a table whose files have other names of columns.

        Raises:
            FormatError: it is one.
        """
        mode = configuration.get(_MAPPING, "none")
        if mode != "none":
            raise TableFormatError(
                f"the table of Delta Lake in {self.storage.describe('')} has {_MAPPING}={mode}, so its files have "
                f"other names of columns; set it to none (SET TBLPROPERTIES ('{_MAPPING}' = 'none')), or "
                "read the table by Spark and join it by asof_join"
            )


def data_path(storage: Storage, added: Added) -> str:
    """Return the path of a file that an action has added, below the table's directory.

    Raises:
        FormatError: it is elsewhere, or some of its rows are deleted by what is in another file.
    """
    path = unquote(added.path)
    if added.deletes:
        raise TableFormatError(
            f"rows of {storage.describe(path)} are deleted by a deletion vector, which is not read here; write the "
            "files anew without (REORG TABLE ... APPLY (PURGE)), and have no more of them (TBLPROPERTIES "
            "'delta.enableDeletionVectors' = 'false')"
        )
    if _ELSEWHERE.match(added.path):
        raise TableFormatError(
            f"the table of Delta Lake in {storage.describe('')} has the file {path}, which is not in it, as a shallow "
            "clone has; make it a deep one, or read the table by Spark and join it by asof_join"
        )
    return path


def _file(action: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the identity of an action's file: its path and its deletion vector."""
    vector = action.get("deletionVector") or {}
    return _text(action["path"]), tuple(vector.get(name) for name in _VECTOR)


def _added(action: Mapping[str, Any]) -> Added:
    values = dict(action["partitionValues"] or {})
    texts = {name: None if value is None else _text(value) for name, value in values.items()}
    return Added(_text(action["path"]), texts, bool(action.get("deletionVector")))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _version(name: str) -> int | None:
    """Return the version that a file of the log tells; None for other files."""
    match = _COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name)
    return None if match is None else int(match[1])


def _checkpoint(names: Sequence[str], version: int) -> tuple[int, Sequence[str]]:
    """Return the newest checkpoint up to a version, with its files; -1 and none if there is none that is whole."""
    found: dict[tuple[int, int], list[str]] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match is not None and int(match[1]) <= version:
            found.setdefault((int(match[1]), int(match[3] or 1)), []).append(name)
    whole = {number: sorted(files) for (number, size), files in sorted(found.items()) if len(files) == size}
    newest = max(whole, default=-1)
    return newest, whole.get(newest, ())
