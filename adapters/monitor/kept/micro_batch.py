"""``MicroBatch``: the kept progress of one micro-batch, as JSON.

Rule of this module: it knows the form and not where it is kept. Its JSON carries a version number, and a version never
changes its meaning.

Version 2 (times are milliseconds since 1970, durations milliseconds, figures as in docs/metrics.md)::

    {"progress":2,"query":"id","run":"id","name":"name" or null,"batch":7,"started":time,
     "durations":{"addBatch":duration,…},
     "sources":[{"name":"text","rows":records,"behind":records or null},…],
     "reports":[{"application":"name","operator":"name","tasks":number,"figures":{"store:figure":amount,…},
                 "dropped":{"node:reason":records,…},"late":{…},"waiting":{…},
                 "each":[{"task":"0_3","figures":{"figure":amount,…},"late":records,"dropped":records,
                          "keys":{"text":records,…}},…]},…],
     "limits":[{"what":"disk","of":"name","used":bytes,"limit":bytes},…]}

Version 1 has no ``each`` and no ``limits``, and is read as if they were empty.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from millpond.errors import DamagedRecordError, FormatError
from millpond.stores.durability.storage.checked_text import read_count, read_text

VERSION: Final = 2
TRIGGER: Final = "triggerExecution"
"""Spark's name for the whole of a micro-batch."""
STATE: Final = "state.size"
"""The bytes of a task's local copies, on disk or in memory."""

_READ: Final = (1, VERSION)


@dataclass(frozen=True)
class SourceRead:
    """The rows that a micro-batch has read of one source.

    Attributes:
        name: Spark's description of the source.
        rows: how many rows it has read.
        behind: how many records of its most distant partition were not read yet; None if the source does not tell.
    """

    name: str
    rows: int
    behind: int | None = None


@dataclass(frozen=True)
class TaskReport:
    """The report of one task.

    Attributes:
        task: ``<sub-topology>_<partition>``.
        figures: what was measured, by the figure's name, of all its stores together.
        late: late records.
        dropped: dropped records.
        keys: its hottest keys as texts, and about how many records of each there were.
    """

    task: str
    figures: Mapping[str, int] = field(default_factory=dict)
    late: int = 0
    dropped: int = 0
    keys: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """The reports of the tasks of one input or operator, added up.

    Attributes:
        application: the job's name.
        operator: ``operator.<n>`` or the name of a topic; of a verb its name, behind which its inputs have theirs.
        tasks: how many tasks were run.
        figures: what was measured, by ``<store or node>:<figure>``, or the figure's name alone.
        dropped: the dropped records, by ``<node>:<reason>``.
        late: the late records, likewise.
        waiting: the records that wait, likewise.
        each: of an operator, its tasks, those with the most records.
    """

    application: str
    operator: str
    tasks: int
    figures: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    each: tuple[TaskReport, ...] = ()

    def figure(self, name: str) -> int:
        """Return a figure over all stores and nodes."""
        return sum(amount for scoped, amount in self.figures.items() if scoped.rpartition(":")[2] == name)


@dataclass(frozen=True)
class Limit:
    """The use of a limited resource, where it is nearest to its limit.

    Attributes:
        what: ``disk`` or ``memory``.
        of: the task.
        used: how many bytes are used.
        limit: how many there are.
    """

    what: str
    of: str
    used: int
    limit: int


@dataclass(frozen=True)
class MicroBatch:
    """The record that is kept of one micro-batch.

    Attributes:
        query: the query's id, which its checkpoint has too.
        run: the id of its run since it was started.
        name: the query's name, if it has one.
        batch: the number of the micro-batch.
        started: when it was begun, in milliseconds since 1970.
        durations: Spark's steps, by Spark's names, in milliseconds; ``triggerExecution`` is all of them.
        sources: what was read.
        reports: what Millpond's inputs and operators have told.
        limits: what may come to its end.
    """

    query: str
    run: str
    name: str | None
    batch: int
    started: int
    durations: Mapping[str, int]
    sources: tuple[SourceRead, ...]
    reports: tuple[Report, ...]
    limits: tuple[Limit, ...] = ()

    @property
    def took(self) -> int:
        """The time that the micro-batch took, in milliseconds."""
        return self.durations.get(TRIGGER, 0)

    @property
    def rows(self) -> int:
        """The rows that it has read."""
        return sum(source.rows for source in self.sources)

    def to_json(self) -> str:
        return json.dumps({"progress": VERSION, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the micro-batch that ``to_json`` of this release or an earlier one wrote.

        Raises:
            FormatError: this release does not know the version, or the text is something else.
        """
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _damaged(error, text) from error
        version = content.get("progress") if isinstance(content, dict) else None
        if type(version) is not int or version not in _READ:
            raise FormatError(
                f"the progress of a micro-batch has version {version!r}, but this release of Millpond knows versions "
                f"up to {VERSION}; run the release that wrote it, or a newer one"
            )
        try:
            return cls(
                query=read_text(content["query"]),
                run=read_text(content["run"]),
                name=None if content["name"] is None else read_text(content["name"]),
                batch=read_count(content["batch"]),
                started=read_count(content["started"]),
                durations=_amounts(content["durations"]),
                sources=tuple(map(_source, content["sources"])),
                reports=tuple(map(_report, content["reports"] if version > 1 else map(_first, content["reports"]))),
                limits=tuple(map(_limit, content["limits"])) if version > 1 else (),
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(error, text) from error


def _first(report: Any) -> Any:
    """Return a report of version 1 as one of version 2."""
    return {**report, "each": []}


def _source(content: Any) -> SourceRead:
    behind = content["behind"]
    return SourceRead(
        read_text(content["name"]), read_count(content["rows"]), None if behind is None else read_count(behind)
    )


def _report(content: Any) -> Report:
    maps = {name: _amounts(content[name]) for name in ("figures", "dropped", "late", "waiting")}
    tasks, each = read_count(content["tasks"]), tuple(map(_task, content["each"]))
    return Report(read_text(content["application"]), read_text(content["operator"]), tasks, **maps, each=each)


def _task(content: Any) -> TaskReport:
    late, dropped = read_count(content["late"]), read_count(content["dropped"])
    return TaskReport(
        read_text(content["task"]), _amounts(content["figures"]), late, dropped, _amounts(content["keys"])
    )


def _limit(content: Any) -> Limit:
    used, limit = read_count(content["used"]), read_count(content["limit"])
    return Limit(read_text(content["what"]), read_text(content["of"]), used, limit)


def _amounts(content: Any) -> dict[str, int]:
    if not all(type(amount) is int for amount in content.values()):
        raise TypeError(f"{content!r} has something else than integers")
    return {read_text(name): amount for name, amount in content.items()}


def _damaged(error: Exception, text: str) -> FormatError:
    return DamagedRecordError(f"the progress of a micro-batch is damaged ({error!r}): {text[:200]!r}; delete the file")
