"""The pairing of a new plan's sources with those of an old one that they continue.

Rule of this module: nothing is guessed. A source is known again by the files or topics that the checkpoint says it has
read; where that tells too little, the user declares it.
"""

import re
from collections.abc import Mapping, Sequence
from json import loads
from urllib.parse import unquote, urlsplit

from millpond.adapters.spark.continuation.logs import CheckpointLogs
from millpond.errors import CannotContinueError, ConfigurationError

_FILES = re.compile(r"FileStreamSource\[(.*)\]")
_TOPICS = re.compile(r"Kafka\w*\[Subscribe\[(.*)\]\]")
_SCHEME = re.compile(r"^[\w+.-]+:(?://([^/]*))?")
"""The beginning of a path that Spark describes as it is: ``file:/x`` as well as ``file:///x``."""
_GLOB = re.compile(r"[*?\[{]")


def origins_of(
    sources: Sequence[str], old: CheckpointLogs, declared: Mapping[int, int | None] | None
) -> list[int | None]:
    """Return the number of the old source that each source continues; None for one that starts at its beginning.

    Args:
        sources: the new plan's, as Spark describes them in progress reports.
        old: the checkpoint of the old plan.
        declared: what the user says; None for nothing.

    Raises:
        ConfigurationError: what is declared does not fit, or has to be declared.
    """
    if declared is not None:
        return _as_declared(sources, old, declared)
    count = len(old.offsets[old.last].offsets)
    candidates = [[number for number in range(count) if _is_continued(source, old, number)] for source in sources]
    found = [each[0] if each else None for each in candidates]
    known = [number for number in found if number is not None]
    unique = all(len(each) < 2 for each in candidates) and len(set(known)) == len(known)
    if not unique or (None in found and len(known) < count):
        raise _undeclared("it does not tell which sources go on where an earlier one stood", sources, old)
    return found


def _as_declared(sources: Sequence[str], old: CheckpointLogs, declared: Mapping[int, int | None]) -> list[int | None]:
    count = len(old.offsets[old.last].offsets)
    continued = [number for number in declared.values() if number is not None]
    if set(declared) != set(range(len(sources))):
        raise _undeclared(f"sources={dict(declared)} has to name each source of the query", sources, old)
    if not all(0 <= number < count for number in continued) or len(set(continued)) < len(continued):
        raise _undeclared(f"sources={dict(declared)} has to name sources of the checkpoint, once each", sources, old)
    return [declared[number] for number in range(len(sources))]


def _is_continued(source: str, old: CheckpointLogs, number: int) -> bool:
    """Return whether the checkpoint proves that a source has read the same place."""
    path, offset = old.first_files[number], old.offsets[old.last].offsets[number]
    files, topics = _FILES.search(source), _TOPICS.search(source)
    if path is not None:
        return files is not None and _lies_in(_path(path), _SCHEME.sub(r"\1", files[1]))
    return topics is not None and offset.startswith("{") and set(loads(offset)) == set(topics[1].split(", "))


def _lies_in(file: str, place: str) -> bool:
    wild = _GLOB.search(place)
    return file.startswith(place[: wild.start()]) if wild else f"{file}/".startswith(f"{place.rstrip('/')}/")


def _path(uri: str) -> str:
    """Return the path of a file that Spark has noted as a URI, with its host or bucket."""
    parts = urlsplit(uri)
    return f"{parts.netloc}{unquote(parts.path)}"


def _undeclared(reason: str, sources: Sequence[str], old: CheckpointLogs) -> ConfigurationError:
    new = [f"  {number}: {source}" for number, source in enumerate(sources)]
    known = [
        f"  {number}: at {offset}" + (f", first file {old.first_files[number]}" if old.first_files[number] else "")
        for number, offset in enumerate(old.offsets[old.last].offsets)
    ]
    return CannotContinueError(
        "\n".join(
            [
                f"the checkpoint {old.location} cannot be continued, because {reason}; declare it by number: "
                "sources={0: 1, 1: None} says that source 0 goes on as source 1 of the checkpoint, that source 1 "
                "starts at its beginning, and that all others of the checkpoint are gone. The query has the sources",
                *new,
                "and the checkpoint",
                *known,
            ]
        )
    )
