"""One run of a rule over the records and timers of a task: each call, its results, and its failures.

Rule of this module: the operator decides the order of records and timers. A call that raises fails the
task with an error that names the rule, the key and the time; or it has no effect, where failing records are left out.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from millpond.errors import InvalidValueError, RecordError
from millpond.processors.runtime.batches.batch import BatchBuilder
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.verbs.encoding.python_values import to_datetime
from millpond.processors.verbs.key_timers import Due, KeyTimers, Timer, TimerClock
from millpond.processors.verbs.keyed_processor import KeyContext, KeyedProcessor, TaskScope

Results: TypeAlias = Iterable[Mapping[str, Any]] | None

ENDLESS: Final = 10_000
"""More often than that the timers of a key do not fire at one moment, nor after the end of the input."""


class RuleRun:
    """Calls a rule and collects its results.

    Args:
        context: the context of the operator, which has the name of the ``apply``.
        rule: the rule.
        scope: the parts that the contexts of all keys share.
        keys: the key's value by its bytes, for all keys of the run.

    Attributes:
        out: the results, with packed keys.
    """

    def __init__(
        self, context: ProcessorContext, rule: KeyedProcessor, scope: TaskScope, keys: Mapping[bytes, Any]
    ) -> None:
        self.out = BatchBuilder()
        self._context = context
        self._rule = rule
        self._scope = scope
        self._keys = keys
        self._fired: Counter[tuple[bytes, int | None]] = Counter()

    def record(self, key: bytes, row: dict[str, Any], time: int) -> None:
        """Process a record.

        Raises:
            UserFunctionError: the rule failed, and records that fail are not left out.
        """
        self._scope.reached = max(self._scope.reached, time)
        context = KeyContext(self._scope, key, time, TimerClock.EVENT_TIME)
        self._call("process", key, time, row, lambda: self._rule.process(self._keys[key], row, context))

    def fire(self, timers: KeyTimers, before: int) -> None:
        """Fire the timers for times before ``before``, also those that are set meanwhile, in order.

        Raises:
            UserFunctionError: the rule failed, and timers that fail are not left out.
            RecordError: the rule sets timers without end.
        """
        while (due := timers.pop(before)) is not None:
            self._count(due)
            self._fire(due, timers.clock)

    def _fire(self, due: Due, clock: TimerClock) -> None:
        if clock is TimerClock.EVENT_TIME:
            self._scope.reached = max(self._scope.reached, due.time)
        context = KeyContext(self._scope, due.key, due.time, clock)

        def call() -> Results:
            timer = Timer(due.name.decode(), to_datetime(due.time), clock)
            return self._rule.on_timer(self._keys[due.key], timer, context)

        self._call("on_timer", due.key, due.time, {"timer": due.name.decode()}, call)

    def _call(self, method: str, key: bytes, time: int, value: Any, call: Callable[[], Results]) -> None:
        """Call the rule; nothing comes of a call that fails."""
        size = len(self.out.keys)
        self._scope.undo = [] if self._context.leaves_out else None
        try:
            self._collect(key, time, call())
        except Exception as error:  # a user's code may raise anything
            for take_back in reversed(self._scope.undo or []):
                take_back()
            self.out.truncate(size)
            step = f"{method} of {type(self._rule).__name__} at {_shown(time)}"
            self._context.leave_out(error, self._keys[key], value, time, step)
        finally:
            self._scope.undo = None

    def _collect(self, key: bytes, time: int, results: Results) -> None:
        if results is None:
            return
        if isinstance(results, Mapping):
            raise InvalidValueError(f"it returned one row, {results!r:.200}; return a list of rows, or yield them")
        if isinstance(results, str | bytes) or not isinstance(results, Iterable):
            raise InvalidValueError(
                f"it returned {results!r:.200}; return a list of rows, dicts of columns, or yield them"
            )
        for result in results:
            if not isinstance(result, Mapping):
                raise InvalidValueError(f"it gave {result!r:.200}, which is no row; give dicts of columns")
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
            called = f"{type(self._rule).__name__} in apply {self._context.node!r}"
            raise RecordError(
                f"the timers of key {self._keys[due.key]!r} of {called} fired {ENDLESS} times {when}, the last "
                f"one with the name {due.name.decode()!r}: they would never end; {remedy}"
            )


def _shown(time: int) -> str:
    return f"{np.datetime64(time, 'us')} UTC"
