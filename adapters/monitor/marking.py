"""The drawing of a query with its present figures: records, lag, waiting records, sizes of stores.

Rule of this module: it chooses what to say and leaves to ``drawing`` where that goes.
"""

import re
from collections.abc import Sequence
from typing import Final

from millpond.adapters.monitor.diagnosis import units
from millpond.adapters.monitor.drawing import Drawing, Marks, RecordedJob, of_records, of_topology
from millpond.adapters.monitor.overview import OperatorSeen, Reason, StoreSeen
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.topology import Topology

_OWN: Final = "operator."
"""The beginning of an operator's name; a verb's first operator has the verb's name."""
_OPERATOR: Final = re.compile(r"(?:.*\.)?operator\.\d+")
"""Names of operators; that of a verb may be the verb's own."""


def is_input(one: OperatorSeen) -> bool:
    """Return whether a report is of an input, not of an operator, which has a clock."""
    return one.lag is None and _OPERATOR.fullmatch(one.operator) is None


def drawn(
    topology: Topology | None,
    operators: Sequence[OperatorSeen],
    reasons: Sequence[Reason],
    stores: Sequence[StoreSeen],
) -> Drawing:
    """Return the drawing of a topology, or of what is recorded if none is given."""
    inputs = [one for one in operators if is_input(one)]
    if topology is None:
        return of_records(_jobs(operators, reasons, stores))
    marks = Marks()
    for one in inputs:
        marks.topics.setdefault(one.operator, []).append(f"{units.number(one.records_in)} in")
    for reason in reasons:
        place, name = (marks.nodes, reason.node) if reason.node else (marks.topics, reason.operator)
        place.setdefault(name, []).append(_told(reason))
    for store in stores:
        marks.stores.setdefault(store.store, []).append(units.size(store.size))
    return of_topology(topology, marks)


def _jobs(
    operators: Sequence[OperatorSeen], reasons: Sequence[Reason], stores: Sequence[StoreSeen]
) -> dict[str, RecordedJob]:
    names = dict.fromkeys([*(one.application for one in operators), *(store.application for store in stores)])
    jobs = {name: RecordedJob([name]) for name in names}
    told = {one.operator: one.application for one in operators}
    for one in operators:
        job = jobs[one.application]
        if is_input(one):
            job.inputs[one.operator] = [f"{units.number(one.records_in)} in"]
        elif one.lag is not None:
            _, own, number = one.operator.rpartition(_OWN)
            job.lines.append(f"{own and f'{own}{number}: '}lag {units.duration(one.lag)}")
    for reason in reasons:
        if reason.operator in told:
            job = jobs[told[reason.operator]]
            job.inputs.get(reason.operator, job.lines).append(_told(reason))
    for store in stores:
        job = jobs[store.application]
        job.sinks.add(store.sink)
        job.stores[store.subtopology, store.store] = [store.kind, units.size(store.size)]
    return jobs


def _told(reason: Reason) -> str:
    return f"{units.number(reason.records)} {'wait' if reason.reason == CounterName.WAITING else reason.reason}"
