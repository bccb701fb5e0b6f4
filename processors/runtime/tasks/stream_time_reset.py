"""Setting back the stream time of tasks, once for each moment that a user names.

Stream time only moves forward, so a record of the far future leaves a task there: everything after it is late. The
times in its stores are set back here before the task's first record, in the transaction of its micro-batch. Each store
keeps the moment as the ``KeptTime`` ``reset``, so that the same moment is not set again when the task has moved on.

Rule of this module: it knows neither kinds of stores nor layouts; each sets back what it keeps (``SetBack``).
"""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.kept_time import KeptTime
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.typed.set_back import SetBack

RESET: Final = "reset"
"""The name under which a store keeps the moment to which it was set back last."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamTimeReset:
    """The moment to which the times of tasks are set back, where they are later. Travels to the workers.

    Attributes:
        limit: the moment.
        unit: its unit, and that of all times of the topology.
    """

    limit: int
    unit: TimeUnit

    def apply(self, task_id: str, stores: Mapping[str, Any], counts: Counter[str]) -> bool:
        """Set back the stores of a task that have not been set back to this moment; False if there are none.

        Args:
            task_id: the task, for the log.
            stores: its open stores.
            counts: gets the changes, by ``<store>:<counter>``.
        """
        due = {name: store for name, store in stores.items() if KeptTime(store, RESET).get() != self.limit}
        for name, store in due.items():
            done = store.set_back(self.limit)
            KeptTime(store, RESET).put(self.limit)
            self._report(f"store {name!r} of task {task_id}", done)
            for counter, amount in (
                (CounterName.SET_BACK, len(done.moved) + done.retimed),
                (CounterName.REMOVED_BEYOND_RESET, done.removed),
            ):
                if amount:
                    counts[f"{name}:{counter}"] += amount
        return bool(due)

    def _report(self, where: str, done: SetBack) -> None:
        to = self.unit.shown(self.limit)
        for name, time in done.moved.items():
            _log.warning("%s: %s is set back from %s to %s", where, name, self.unit.shown(time), to)
        if done.retimed or done.removed:
            _log.warning("%s: beyond %s, set back %d and removed %d entries", where, to, done.retimed, done.removed)
