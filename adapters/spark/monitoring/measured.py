"""Measurements of inputs and operators in the progress of a query, added up over their tasks.

Rule of this module: it reads what ``millpond.adapters.spark.worker.counters`` has Spark observe. Figures are sums over
tasks, but for times and limits: the task that is furthest behind, or nearest to a limit, counts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from millpond.adapters.spark.worker.counters import MEASURED
from millpond.metrics import StoreMetric
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.metrics import TaskMetric

PREFIX: Final = "millpond."
"""The beginning of the names of all metrics."""

LATE: Final = (
    CounterName.DROPPED_LATE,
    CounterName.DROPPED_EXPIRED,
    CounterName.BEYOND_HISTORY_RETENTION,
    CounterName.PASSED_LATE,
)
"""The counts of records that came too late."""

_FIRST_OF_VERB: Final = ".operator.0"
"""The end of the name of a verb's first operator, left out because most verbs have only one."""

_DROPPED: Final = "dropped-"
_COMBINED: Final[Mapping[str, Callable[[Iterable[int]], int]]] = {
    TaskMetric.STREAM_TIME: min,
    TaskMetric.STREAM_LAG: max,
    TaskMetric.LATENESS: max,
    StoreMetric.DISK_FREE: min,
    StoreMetric.DISK_SIZE: min,
    StoreMetric.MEMORY_BUDGET: min,
    StoreMetric.FILES_RETAINED: max,
}


class Figure(NamedTuple):
    """A figure's scope, a node or a store or (empty) the tasks as a whole, and its name."""

    scope: str
    name: str


class Place(NamedTuple):
    """The place that measurements come from: its task, empty for a split of an input; its counts and hottest keys."""

    task: str
    counts: Mapping[str, int]
    keys: Mapping[str, int]


@dataclass(frozen=True)
class Measured:
    """The measurements of one input or operator in one micro-batch.

    Attributes:
        application: the job's name.
        operator: ``operator.<n>`` or the name of a topic; of a verb its name, behind which its inputs have theirs, and
            operators but the first one ``operator.<n>``.
        tasks: the measurements of each task.
        counts: the counts of each task that has any.
        places: whose the measurements are, in their order.
    """

    application: str
    operator: str
    tasks: Sequence[Mapping[str, int]]
    counts: Sequence[Mapping[str, int]]
    places: Sequence[Place] = ()

    @cached_property
    def figures(self) -> dict[Figure, int]:
        """The measurements of all tasks."""
        return _together(self.tasks)

    @cached_property
    def counted(self) -> dict[Figure, int]:
        """The counts of all tasks; their scope is the node."""
        return _together(self.counts)

    @property
    def each(self) -> Iterator["tuple[str, Measured]"]:
        """The measurements of each task that names itself, by its name; all others together under the empty name."""
        if not self.places:
            yield "", self
            return
        found: dict[str, list[tuple[Mapping[str, int], Place]]] = {}
        for task, place in zip(self.tasks, self.places, strict=True):
            found.setdefault(place.task, []).append((task, place))
        for name, some in found.items():
            tasks, places = zip(*some, strict=True)
            counts = [place.counts for place in places if place.counts]
            yield name, Measured(self.application, self.operator, tasks, counts, places)

    def figure(self, name: str) -> int | None:
        """Return a figure over all nodes and stores; None if nobody has measured it."""
        found = [amount for figure, amount in self.figures.items() if figure.name == name]
        return _COMBINED.get(name, sum)(found) if found else None

    @property
    def dropped(self) -> dict[Figure, int]:
        """The dropped records, by node and reason."""
        return {figure: amount for figure, amount in self.counted.items() if is_dropped(figure.name)}

    @property
    def late(self) -> dict[Figure, int]:
        """The late records, by node and what became of them."""
        return {figure: amount for figure, amount in self.counted.items() if figure.name in LATE}

    @property
    def waiting(self) -> dict[Figure, int]:
        """The records that wait, by node."""
        return {figure: amount for figure, amount in self.counted.items() if figure.name == CounterName.WAITING}


def is_dropped(name: str) -> bool:
    """Return whether a counter is of records that had no effect."""
    return name.startswith(_DROPPED)


def measured_in(observed: Mapping[str, Any]) -> list[Measured]:
    """Return the measurements of Millpond's inputs and operators, in the order of their names; empty if there are none.

    Args:
        observed: the observed metrics that a listener is told, each a row.
    """
    names = sorted(name for name in observed if name.startswith(PREFIX) and name.endswith(MEASURED))
    found = []
    for name in names:
        row, counts = observed[name], observed[name.removesuffix(MEASURED)]
        operator = name.removeprefix(PREFIX).removesuffix(MEASURED).removesuffix(_FIRST_OF_VERB)
        places = list(map(_place, row["places"]))
        found.append(Measured(row["application"], operator, row["tasks"], counts["tasks"], places))
    return found


def _place(told: Any) -> Place:
    """Return the place that measurements come from, of a row, or of its JSON, where nulls are left out."""
    found = told if isinstance(told, dict) else told.asDict()
    return Place(found.get("task") or "", found.get("counts") or {}, found.get("keys") or {})


def _together(tasks: Iterable[Mapping[str, int]]) -> dict[Figure, int]:
    found: dict[Figure, list[int]] = {}
    for task in tasks:
        for key, amount in task.items():
            scope, _, name = key.rpartition(":")
            found.setdefault(Figure(scope, name), []).append(amount)
    return {figure: _COMBINED.get(figure.name, sum)(amounts) for figure, amounts in found.items()}
