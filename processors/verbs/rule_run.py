"""One run of a rule over the records and timers of a task: each call, what comes of it, and what may go wrong in it.

Rule of this module: in which order records and timers come is the operator's business; whatever a user's code raises
leaves as a ``RecordError`` that names the rule, the key and the time.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from millpond.errors import RecordError
from millpond.processors.runtime.batch import BatchBuilder
from millpond.processors.verbs.key_timers import Due, KeyTimers, Timer, TimerClock
from millpond.processors.verbs.keyed_processor import KeyContext, KeyedProcessor, TaskScope
from millpond.processors.verbs.python_values import to_datetime

ENDLESS: Final = 10_000
"""More often than that the timers of a key do not fire at one moment, nor after the end of the input."""


class RuleRun:
    """Calls a rule and collects its results.

    Args:
        name: of the ``apply``.
        rule: the rule.
        scope: what the contexts of all keys share.
        keys: the key's value by its bytes, for all keys of the run.

    Attributes:
        out: the results, with packed keys.
    """

    def __init__(self, name: str, rule: KeyedProcessor, scope: TaskScope, keys: Mapping[bytes, Any]) -> None:
        self.out = BatchBuilder()
        self._name = name
        self._rule = rule
        self._scope = scope
        self._keys = keys
        self._fired: Counter[tuple[bytes, int | None]] = Counter()

    def record(self, key: bytes, row: dict[str, Any], time: int) -> None:
        """Process a record.

        Raises:
            RecordError: the rule failed.
        """
        context = KeyContext(self._scope, key, time, TimerClock.EVENT_TIME)
        try:
            self._collect(key, time, self._rule.process(self._keys[key], row, context))
        except Exception as error:  # a user's code may raise anything
            raise self._failure("process", key, time, error) from error

    def fire(self, timers: KeyTimers, before: int) -> None:
        """Fire the timers for times before ``before``, also those that are set meanwhile, in order.

        Raises:
            RecordError: the rule failed, or sets timers without end.
        """
        while (due := timers.pop(before)) is not None:
            self._count(due)
            context = KeyContext(self._scope, due.key, due.time, timers.clock)
            try:
                timer = Timer(due.name.decode(), to_datetime(due.time), timers.clock)
                self._collect(due.key, due.time, self._rule.on_timer(self._keys[due.key], timer, context))
            except Exception as error:  # a user's code may raise anything
                raise self._failure("on_timer", due.key, due.time, error) from error

    def _collect(self, key: bytes, time: int, results: Iterable[Mapping[str, Any]] | None) -> None:
        if results is None:
            return
        if isinstance(results, Mapping):
            raise TypeError(f"it returned one row, {results!r}; return a list of rows, or yield them")
        for result in results:
            if not isinstance(result, Mapping):
                raise TypeError(f"it gave {result!r}, which is no row; give dicts of columns")
            self.out.add(key, dict(result), time)

    def _count(self, due: Due) -> None:
        complete = self._scope.input_complete
        moment = due.key, None if complete else due.time
        self._fired[moment] += 1
        if self._fired[moment] > ENDLESS:
            when, remedy = (
                ("after the end of the input", "set no more of them once context.input_complete")
                if complete
                else (f"at {_shown(due.time)}", "set them for a later time than context.time")
            )
            raise RecordError(
                f"the timers of key {self._keys[due.key]!r} of {self._called()} fired {ENDLESS} times {when}, the last "
                f"one with the name {due.name.decode()!r}: they would never end; {remedy}"
            )

    def _failure(self, method: str, key: bytes, time: int, error: Exception) -> RecordError:
        return RecordError(
            f"{method} of {self._called()} failed for key {self._keys[key]!r} at {_shown(time)}: "
            f"{type(error).__name__}: {error}; correct it and restart, nothing of this micro-batch was kept"
        )

    def _called(self) -> str:
        return f"{type(self._rule).__name__} in apply {self._name!r}"


def _shown(time: int) -> str:
    return f"{np.datetime64(time, 'us')} UTC"
