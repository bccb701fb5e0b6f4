"""``History``: the work of a query over minutes, hours and days, as JSON of a bounded size.

Rule of this module: it computes and knows the form, not where it is kept. Every micro-batch goes into the point of its
minute, of its hour and of its day, and the oldest points go. Its JSON carries a version number, and a version never
changes its meaning.

Version 1 (times are milliseconds since 1970, durations milliseconds; a point has its figures in the order of
``Point``)::

    {"history":1,"query":"id","levels":[[point,…] of minutes,[…] of hours,[…] of days],
     "sizes":{"application operator task":[bytes,batch],…}}
"""

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields, replace
from typing import Any, Final, Self

from millpond.adapters.monitor.kept.micro_batch import STATE, MicroBatch
from millpond.errors import DamagedRecordError, FormatError
from millpond.metrics import StoreMetric
from millpond.processors.runtime.metrics import TaskMetric
from millpond.stores.durability.storage.checked_text import read_count, read_text

VERSION: Final = 1
MINUTE: Final = 60_000
LEVELS: Final = ((MINUTE, 180), (60 * MINUTE, 168), (24 * 60 * MINUTE, 400))
"""The milliseconds of a point of each level, and the number of points kept: three hours, a week, a year."""

_FORGOTTEN: Final = 500
"""After so many micro-batches without a word of a task, as after another number of partitions, its size is unknown."""
_MICROS: Final = 1_000


@dataclass(frozen=True)
class Point:
    """The work of a query in a stretch of time.

    Attributes:
        at: when the stretch begins.
        batches: how many micro-batches were begun in it.
        rows: the rows that they have read.
        took: how long they took together.
        longest: how long the longest took.
        late: late records.
        dropped: dropped records.
        open, process, flush, commit: what tasks did, summed over them.
        waiting: the most records that waited.
        lag: the longest lag of an operator's task; None if unknown.
        stream_time: the greatest stream time of an operator, each at its earliest task; likewise.
        behind: the most records that a source was behind; likewise.
        state: the bytes of all local copies at the end; likewise.
        free: the fewest bytes that were free on a worker's disk; likewise.
    """

    at: int
    batches: int = 0
    rows: int = 0
    took: int = 0
    longest: int = 0
    late: int = 0
    dropped: int = 0
    open: int = 0
    process: int = 0
    flush: int = 0
    commit: int = 0
    waiting: int = 0
    lag: int | None = None
    stream_time: int | None = None
    behind: int | None = None
    state: int | None = None
    free: int | None = None

    def __add__(self, later: "Point") -> "Point":
        """Both as one point, of which ``later`` is the later part."""
        told: dict[str, Any] = {name: getattr(self, name) + getattr(later, name) for name in _SUMS}
        told |= {name: _known(max, getattr(self, name), getattr(later, name)) for name in _MOST}
        state = self.state if later.state is None else later.state
        return Point(self.at, **told, state=state, free=_known(min, self.free, later.free))


_SUMS: Final = ("batches", "rows", "took", "late", "dropped", "open", "process", "flush", "commit")
_MOST: Final = ("longest", "waiting", "lag", "stream_time", "behind")
_COUNTS: Final = ("at", *_SUMS, "longest", "waiting")


@dataclass(frozen=True)
class History:
    """The work of a query since it began, the finer the later.

    Attributes:
        query: the query's id.
        minutes, hours, days: the points, the first one first; a stretch without a micro-batch has none.
        sizes: by application, operator and task, the bytes of its local copies, and the micro-batch that told.
    """

    query: str
    minutes: tuple[Point, ...] = ()
    hours: tuple[Point, ...] = ()
    days: tuple[Point, ...] = ()
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def with_batch(self, one: MicroBatch) -> Self:
        """Return the history with one more micro-batch."""
        sizes = {task: told for task, told in self.sizes.items() if one.batch - told[1] < _FORGOTTEN}
        for report in one.reports:
            for task in report.each:
                size = task.figures.get(STATE)
                if size is not None:
                    sizes[f"{report.application} {report.operator} {task.task}"] = size, one.batch
        point = point_of(one, sum(size for size, _ in sizes.values()) if sizes else None)
        levels = (self.minutes, self.hours, self.days)
        minutes, hours, days = (
            _with(points, point, every)[-count:] for points, (every, count) in zip(levels, LEVELS, strict=True)
        )
        return replace(self, minutes=minutes, hours=hours, days=days, sizes=sizes)

    def to_json(self) -> str:
        levels = [list(map(astuple, points)) for points in (self.minutes, self.hours, self.days)]
        content = {"history": VERSION, "query": self.query, "levels": levels, "sizes": dict(self.sizes)}
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the history that ``to_json`` wrote.

        Raises:
            FormatError: this release does not know the version, or the text is something else.
        """
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _damaged(error, text) from error
        version = content.get("history") if isinstance(content, dict) else None
        if type(version) is not int or version != VERSION:
            raise FormatError(
                f"the history of a query has version {version!r}, but this release of Millpond knows version "
                f"{VERSION}; run the release that wrote it, or a newer one"
            )
        try:
            minutes, hours, days = (tuple(map(_point, points)) for points in content["levels"])
            sizes = {
                read_text(name): (read_count(size), read_count(at)) for name, (size, at) in content["sizes"].items()
            }
            return cls(read_text(content["query"]), minutes, hours, days, sizes)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(error, text) from error


def point_of(one: MicroBatch, state: int | None) -> Point:
    """Return the point of a single micro-batch.

    Args:
        one: the micro-batch.
        state: the bytes of all local copies after it.
    """
    figures = [report.figures for report in one.reports]
    lags = [told[TaskMetric.STREAM_LAG] // _MICROS for told in figures if TaskMetric.STREAM_LAG in told]
    times = [told[TaskMetric.STREAM_TIME] // _MICROS for told in figures if TaskMetric.STREAM_TIME in told]
    free = [told[StoreMetric.DISK_FREE] for told in figures if StoreMetric.DISK_FREE in told]
    behind = [source.behind for source in one.sources if source.behind is not None]
    work = {name: sum(report.figure(figure) for report in one.reports) // _MICROS for name, figure in _WORK.items()}
    return Point(
        one.started,
        batches=1,
        rows=one.rows,
        took=one.took,
        longest=one.took,
        late=sum(sum(report.late.values()) for report in one.reports),
        dropped=sum(sum(report.dropped.values()) for report in one.reports),
        waiting=sum(sum(report.waiting.values()) for report in one.reports),
        lag=max(lags, default=None),
        stream_time=max(times, default=None),
        behind=max(behind, default=None),
        state=state,
        free=min(free, default=None),
        **work,
    )


_WORK: Final = {
    "open": StoreMetric.OPEN_DURATION,
    "process": TaskMetric.PROCESS_DURATION,
    "flush": TaskMetric.FLUSH_DURATION,
    "commit": StoreMetric.COMMIT_DURATION,
}


def _with(points: tuple[Point, ...], point: Point, every: int) -> tuple[Point, ...]:
    begins = replace(point, at=point.at - point.at % every)
    if points and points[-1].at >= begins.at:  # also after the clock went back: the order is that of micro-batches
        return (*points[:-1], points[-1] + point)
    return (*points, begins)


def _known(choose: Any, one: int | None, other: int | None) -> int | None:
    known = [amount for amount in (one, other) if amount is not None]
    return choose(known) if known else None


def _point(content: Any) -> Point:
    if len(content) != len(fields(Point)):
        raise ValueError(f"{content!r} has not the figures of a point")
    point = Point(*content)
    for name, amount in vars(point).items():
        if not (type(amount) is int or (amount is None and name not in _COUNTS)):
            raise TypeError(f"{amount!r} is no {name}")
    return point


def _size(content: Any) -> tuple[int, int]:
    size, batch = map(read_count, content)
    return size, batch


def _damaged(error: Exception, text: str) -> FormatError:
    return DamagedRecordError(f"the history of a query is damaged ({error!r}): {text[:200]!r}; delete the file")
