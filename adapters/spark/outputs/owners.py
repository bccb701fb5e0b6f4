"""The owners of a checkpoint and of a directory of files: notes that keep one query's rows from another's.

Rule of this module: a note is written before the first micro-batch, and what has micro-batches is never given another
owner. The notes, both JSON, are::

    <checkpoint>/millpond-sinks.json    {"version": 1, "query": an id, "sinks": [names, sorted]}
    <path of a FileOutput>/_millpond.json    {"version": 1, "query": the same id, "sink": a name}

A process may die while it writes a note. Then there is no micro-batch yet, and the note is written again.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from millpond.adapters.backup.checkpoint_copy import SINKS
from millpond.adapters.spark.continuation.files import CheckpointFiles
from millpond.adapters.spark.outputs.output import BATCH_DIRECTORY
from millpond.errors import PlaceTakenError, WrongCheckpointError

_OWNER: Final = "_millpond.json"
_VERSION: Final = 1


def claim_checkpoint(files: CheckpointFiles, location: str, sinks: Sequence[str]) -> str:
    """Note which sinks the query of a checkpoint writes; the query's id, which stays the same at every start.

    Args:
        files: the file system.
        location: the ``checkpointLocation``.
        sinks: the names of the sinks, sorted.

    Raises:
        StateConflictError: the query that has begun there writes others, or is not one of several sinks.
        DurabilityError: the file system failed.
    """
    place = f"{location.rstrip('/')}/{SINKS}"
    known = _noted(files, place)
    if files.exists(f"{location.rstrip('/')}/metadata"):  # Spark's own note that a query has begun
        begun = known.get("sinks")
        if begun != list(sinks):
            what = "that was not started with sinks=" if begun is None else f"that writes the sinks {begun}"
            raise WrongCheckpointError(
                f"the checkpoint {location} is that of a query {what}, not of one that writes {list(sinks)}; give the "
                "checkpoint_location of this query, or a new one with another application_id"
            )
        return str(known["query"])
    query = str(known.get("query", uuid4().hex))
    _note(files, place, {"query": query, "sinks": list(sinks)})
    return query


def claim_directory(files: CheckpointFiles, path: str, query: str, sink: str) -> None:
    """Note that the micro-batches in a directory are those of a sink of a query.

    Raises:
        StateConflictError: it has micro-batches of another one, which would be overwritten.
        DurabilityError: the file system failed.
    """
    place = f"{path.rstrip('/')}/{_OWNER}"
    own, known = {"query": query, "sink": sink}, _noted(files, place)
    if own.items() <= known.items():
        return
    if any(name.startswith(BATCH_DIRECTORY) for name in files.directories(path)):
        raise WrongCheckpointError(
            f"{path} has micro-batches of another query or sink, which those of sink {sink!r} would replace, as their "
            f"numbers begin anew with each checkpoint; give sink {sink!r} another path"
        )
    _note(files, place, own)


def check_apart(files: CheckpointFiles, paths: Mapping[str, str]) -> None:
    """Refuse two sinks in one directory.

    Args:
        files: the file system.
        paths: by sink.

    Raises:
        ConfigurationError: there are two.
    """
    owners: dict[str, str] = {}
    for sink, path in paths.items():
        other = owners.setdefault(files.qualified(path).rstrip("/"), sink)
        if other != sink:
            raise PlaceTakenError(
                f"the sinks {other!r} and {sink!r} both have the path {path}, where one would replace the files of the "
                "other; give each its own"
            )


def _noted(files: CheckpointFiles, place: str) -> Mapping[str, Any]:
    """Return the content of a note; nothing if there is none, or it was not written to its end."""
    if not files.exists(place):
        return {}
    try:
        found = json.loads(files.read(place))
    except ValueError:
        return {}
    return found if isinstance(found, dict) and found.get("version") == _VERSION else {}


def _note(files: CheckpointFiles, place: str, entries: Mapping[str, Any]) -> None:
    files.delete(place)
    files.write(place, json.dumps({"version": _VERSION, **entries}))
