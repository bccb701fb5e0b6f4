"""The task states that a Python worker keeps from micro-batch to micro-batch, within one budget of memory.

While its task is not at work, a state holds the rows of backends without files; engines with files are closed then.
These rows are a cache: they may be let go of at any time, and are restored from durable files when their task comes.

Rule of this module: it knows neither Spark nor queries, only who owns a state. The state at work is never let go. Which
one goes first follows from how tasks come, in the same order in each micro-batch: one that has not come since the task
at work came last has moved to another worker, or seldom comes, and goes first; of the others, the one that has just
been at work comes again last.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from millpond.stores.durability.state import TaskState

_log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 600.0
"""The seconds for which a worker remembers a task that has moved elsewhere."""

_NEVER: Final = -1


class Owner(NamedTuple):
    """The owner of state.

    Attributes:
        query: what tells the query from all others that a worker may serve.
        run: of the query; what was remembered of another run is dropped.
        memory_budget: bytes for all stores of the worker; None for no limit.
    """

    query: tuple[str, str, str]
    run: str
    memory_budget: int | None


@dataclass
class _Kept:
    """A state, and when it was used.

    Attributes:
        state: the state, which can be opened again once it is let go of.
        owner: the owner of the state.
        used: when its task began last, in seconds.
        turn: the number of that beginning, among all tasks of the worker.
        turn_before: the number of the one before.
        size: the bytes that it had in memory when its task was done last.
        held: the bytes of these that it still has.
        warned: whether it is known to be larger than the budget.
    """

    state: TaskState
    owner: Owner
    used: float = 0.0
    turn: int = _NEVER
    turn_before: int = _NEVER
    size: int = 0
    held: int = 0
    warned: bool = False

    def begin(self, now: float, turn: int) -> None:
        """Note that the task begins."""
        self.used, self.turn_before, self.turn = now, self.turn, turn

    def measure(self) -> None:
        """Note that the task is done, and measure its state."""
        self.size = self.held = self.state.memory_use()

    def let_go(self) -> None:
        """Close it, and have back what it holds."""
        self.held = 0
        self.state.close()


class KeptStates:
    """The states of the tasks that a worker has served."""

    def __init__(self) -> None:
        # In the order in which they were used last.
        self._kept: dict[tuple[tuple[str, str, str], str], _Kept] = {}
        self._turns = 0

    @contextmanager
    def at_work(self, owner: Owner, task_id: str, make: Callable[[], TaskState], now: float) -> Iterator[TaskState]:
        """The state of a task, for one micro-batch.

        Args:
            owner: whose it is.
            task_id: the task's.
            make: makes it, if it is not there.
            now: a time in seconds that never goes back.
        """
        self._forget(owner, now)
        key = owner.query, task_id
        one = self._kept.pop(key, None) or _Kept(make(), owner)
        self._kept[key] = one
        one.begin(now, self._turns)
        self._turns += 1
        self._make_room(one)
        try:
            yield one.state
        finally:
            one.measure()
        limit = self._make_room(one)
        if limit is not None and one.size > limit and not one.warned:
            one.warned = True
            _warn(one, task_id, limit)

    def _forget(self, owner: Owner, now: float) -> None:
        """Close what an earlier run of this query left behind, and what has long been idle."""
        for key, one in list(self._kept.items()):
            replaced = one.owner.query == owner.query and one.owner.run != owner.run
            if replaced or now - one.used > IDLE_SECONDS:
                del self._kept[key]
                one.state.close()

    def _make_room(self, at_work: _Kept) -> int | None:
        """Keep rows in memory within their limit, with the state at work as large as it was when it was done last.

        Returns:
            The limit, which is half of the budget if there are engines that share it; None without a budget. The
            budget is the smallest of the queries that the worker serves.
        """
        budgets = [one.owner.memory_budget for one in self._kept.values() if one.owner.memory_budget is not None]
        if not budgets:
            return None
        budget = min(budgets)
        engines = [engine for one in self._kept.values() for engine in one.state.budgeted]
        limit = budget // 2 if engines else budget
        others = [one for one in self._kept.values() if one is not at_work and one.held]
        total = at_work.size + sum(one.held for one in others)
        while total > limit and others:
            gone = others.pop(0 if others[0].turn < at_work.turn_before else -1)
            total -= gone.held
            gone.let_go()
        for engine in engines:
            engine.limit_memory(budget - min(total, limit))
        return limit


def _warn(one: _Kept, task_id: str, limit: int) -> None:
    """Say that a state is too large for the budget."""
    _log.warning(
        "the rows of task %s of application %r take about %d bytes of memory, and memory_budget leaves %d for rows in "
        "each Python worker. They stay while the worker serves no other task, and are restored from the durable files "
        "whenever it does: give the stores a backend with files (rocksdb or lmdb), or the job more partitions or a "
        "larger memory_budget",
        task_id,
        one.owner.query[1],
        one.size,
        limit,
    )
