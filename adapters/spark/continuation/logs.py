"""The logs of a checkpoint: the end of each source's part of a micro-batch, and the committed micro-batches.

Rule of this module: it knows the text of Spark's log files and reads no data. Spark writes them as follows, and an
offset that does not exist yet as ``-``::

    offsets/<micro-batch>                      commits/<micro-batch>
    v1                                         v1, or v2
    {"batchWatermarkMs":0,...,"conf":{...}}    {"nextBatchWatermarkMs":0,...}
    the offset of source 0
    the offset of source 1
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from millpond.adapters.backup.checkpoint_copy import NAMED_SOURCES, has_named_sources
from millpond.adapters.spark.continuation.files import CheckpointFiles
from millpond.adapters.spark.session.session import PARTITIONS_CONF
from millpond.errors import CannotContinueError, NoCheckpointError

NO_OFFSET: Final = "-"
"""A source with this offset is at its beginning."""

_FILE_OFFSET: Final = "logOffset"


@dataclass(frozen=True)
class OffsetLog:
    """One file of ``offsets``.

    Attributes:
        metadata: watermark, time and settings of the micro-batch.
        offsets: up to where each source is read, as Spark has written it, in the order of the plan.
    """

    metadata: Mapping[str, Any]
    offsets: Sequence[str]

    @classmethod
    def parse(cls, text: str, path: str) -> Self:
        """Return the log whose file has this text.

        Raises:
            ConfigurationError: the file at ``path`` has another form.
        """
        if has_named_sources(text):
            raise CannotContinueError(
                f"{path} is of a query whose sources have names ({NAMED_SOURCES}), and such a checkpoint cannot be "
                "continued; keep the query there, without into=..."
            )
        _, metadata, *offsets = text.split("\n")
        return cls(json.loads(metadata), offsets)

    def text(self) -> str:
        return "\n".join(["v1", _told(self.metadata), *self.offsets])

    def continued(self, origins: Sequence[int | None], partitions: int) -> Self:
        """Return the same position in the sources of another plan; if all are new, Spark reads nothing of any.

        Args:
            origins: for each source of that plan the one that it was; None for a new one.
            partitions: the shuffle partitions of that plan, which the checkpoint keeps from now on.
        """
        conf = {**self.metadata.get("conf", {}), PARTITIONS_CONF: str(partitions)}
        offsets = [NO_OFFSET if origin is None else self.offsets[origin] for origin in origins]
        return replace(self, metadata={**self.metadata, "conf": conf}, offsets=offsets)


@dataclass(frozen=True)
class CheckpointLogs:
    """The place at which a query stands, by its checkpoint's logs.

    Attributes:
        location: the checkpoint.
        identity: the content of its file ``metadata``, with the query's id.
        last: the last micro-batch that was committed.
        commit: the content of its file in ``commits``.
        offsets: by micro-batch: the last one, the one before it, and the one after it if that was planned.
        first_files: for each source, the first file that it has read; None for a source that is no directory of files.
    """

    location: str
    identity: str
    last: int
    commit: str
    offsets: Mapping[int, OffsetLog]
    first_files: Sequence[str | None]

    @classmethod
    def read(cls, files: CheckpointFiles, location: str) -> Self:
        """Read the logs of a checkpoint.

        Raises:
            ConfigurationError: there is no checkpoint, or it has no committed micro-batch, or is of an unknown form.
            DurabilityError: it cannot be read.
        """
        if not files.exists(f"{location}/metadata"):
            raise NoCheckpointError(
                f"there is no checkpoint at {location}; give the query's checkpointLocation, or, if it has none yet, "
                "leave into=... out"
            )
        committed = _numbers(files, f"{location}/commits")
        if not committed:
            raise NoCheckpointError(
                f"the query with the checkpoint {location} has not committed a micro-batch yet, so there is nothing to "
                "continue; let it commit one, or start anew with a new checkpoint and a new output"
            )
        last = committed[-1]
        wanted = [batch for batch in _numbers(files, f"{location}/offsets") if abs(batch - last) <= 1]
        places = {batch: f"{location}/offsets/{batch}" for batch in wanted}
        offsets = {batch: OffsetLog.parse(files.read(path), path) for batch, path in places.items()}
        if last not in offsets:
            raise CannotContinueError(
                f"the checkpoint {location} has committed micro-batch {last}, but has no offsets of it; put the file "
                f"offsets/{last} back"
            )
        return cls(
            location,
            files.read(f"{location}/metadata"),
            last,
            files.read(f"{location}/commits/{last}"),
            offsets,
            [_first_file(files, location, *source) for source in enumerate(offsets[last].offsets)],
        )


def committed_after(files: CheckpointFiles, location: str, batch: int) -> bool:
    """Return whether a checkpoint has a micro-batch that comes after that one."""
    return any(number > batch for number in _numbers(files, f"{location}/commits"))


def continued_commit(old: str, made: str) -> str:
    """Return the commit of a micro-batch that has the old one's watermark, and the state that another one has made."""
    version, _, content = made.partition("\n")
    watermark = json.loads(old.partition("\n")[2])["nextBatchWatermarkMs"]
    return f"{version}\n{_told({**json.loads(content), 'nextBatchWatermarkMs': watermark})}"


def _first_file(files: CheckpointFiles, location: str, source: int, offset: str) -> str | None:
    """Return the first file that a source of files has read, by the source's own log."""
    if not (offset.startswith("{") and _FILE_OFFSET in json.loads(offset)):
        return None
    directory = f"{location}/sources/{source}"
    for name in files.files(directory):
        for line in files.read(f"{directory}/{name}").split("\n")[1:]:
            if '"path"' in line:
                return str(json.loads(line)["path"])
    raise CannotContinueError(
        f"source {source} of the checkpoint {location} has read files, but has no log in {directory}: that query reads "
        "one DataFrame twice, and such a checkpoint cannot be continued"
    )


def _numbers(files: CheckpointFiles, directory: str) -> list[int]:
    return sorted(int(name) for name in files.files(directory) if name.isdecimal())


def _told(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))
