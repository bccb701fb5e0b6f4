"""``KeyedProcessor``: the user's part of ``apply``: a rule for the records and timers of one key, in time order.

Rule of this module: it is all that such a rule knows: a key, a row, one value of state, timers, and the time.
It does not know tasks, batches or bytes. The operator decides which records there are and when timers fire.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from millpond.errors import InvalidArgumentError, InvalidTimeError, SerdeError
from millpond.processors.verbs.encoding.python_values import from_datetime, to_datetime
from millpond.processors.verbs.encoding.state_values import unfit_state
from millpond.processors.verbs.key_timers import KeyTimers, Timer, TimerClock
from millpond.stores.encoding.times import to_micros
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore, ValueAndTimestamp


@dataclass(slots=True)
class TaskScope:
    """The parts that the contexts of all keys of a task share.

    Attributes:
        state: the state by key, each with the event time at which it was set last.
        event_timers, wall_timers: the timers by event time, and by the wall clock.
        wall_clock: the wall-clock time, in microseconds.
        reached: the event time that the running call of the rule has reached: no earlier than that of any call
            of its key before.
        input_complete: whether the last record has been processed.
        undo: takes back the changes of the running call of the rule, the last one first; None if it will not be
            called.
    """

    state: TimestampedKeyValueStore[bytes, Any]
    event_timers: KeyTimers
    wall_timers: KeyTimers
    wall_clock: int
    reached: int
    input_complete: bool = False
    undo: list[Callable[[], None]] | None = None

    def get_state(self, key: bytes) -> Any:
        """Return the state of a key; None if it has none, or none any more."""
        expiry = self.state.expiry
        if expiry is None:
            return self.state.get_value(key)
        found = self.state.get(key)
        return None if found is None or found.timestamp <= expiry.gone_at(self.reached) else found.value

    def put_state(self, key: bytes, value: Any) -> None:
        """Set the state of a key."""
        before = None if self.undo is None else self.state.get(key)
        try:
            self.state.put(key, value, self.reached)
        except SerdeError as error:
            raise unfit_state(value) from error
        if self.undo is not None:
            self.undo.append(lambda: self._restore(key, before))

    def _restore(self, key: bytes, before: ValueAndTimestamp[Any] | None) -> None:
        value, time = (None, self.reached) if before is None else before
        self.state.put(key, value, time)

    def set_timer(self, timers: KeyTimers, key: bytes, name: bytes, time: int | None) -> None:
        """Set a timer; without a time, cancel it."""
        if self.undo is not None:
            before = timers.now(key, name)
            self.undo.append(lambda: timers.reset(key, name, before))
        timers.reset(key, name, time)


class KeyState:
    """One lasting value for each key: any value that MessagePack carries, with datetime, Decimal, UUID and so on.

    With a time to live (``ttl``) it lasts until event time is that much later than when it was last set. A row or timer
    of that time or a later one finds none, as if it had been deleted.

    ``get`` returns a copy: a change of it counts as soon as it is ``set``, and not before. Tuples come back as lists.
    """

    __slots__ = ("_key", "_scope")

    def __init__(self, scope: TaskScope, key: bytes) -> None:
        self._scope = scope
        self._key = key

    def get(self, default: Any = None) -> Any:
        """Return the value, or ``default`` if there is none."""
        value = self._scope.get_state(self._key)
        return default if value is None else value

    def set(self, value: Any) -> None:
        """Set the value; None deletes it.

        Raises:
            SerdeError: MessagePack cannot carry it; the message says what to write.
        """
        self._scope.put_state(self._key, value)

    def delete(self) -> None:
        """Forget the value, if there is one."""
        self._scope.put_state(self._key, None)


class KeyContext:
    """The interface of a rule while it handles one record or one timer of a key. It is of no use afterward."""

    __slots__ = ("_clock", "_key", "_scope", "_time")

    def __init__(self, scope: TaskScope, key: bytes, time: int, clock: TimerClock) -> None:
        self._scope = scope
        self._key = key
        self._time = time
        self._clock = clock

    @property
    def time(self) -> datetime:
        """The time of the record, or for which the timer was set; in UTC."""
        return to_datetime(self._time)

    @property
    def wall_clock(self) -> datetime:
        """The time by the clock, in UTC; it stands still within a micro-batch."""
        return to_datetime(self._scope.wall_clock)

    @property
    def input_complete(self) -> bool:
        """True if no record is left to come: a timer that sets itself again and again should stop."""
        return self._scope.input_complete

    @property
    def state(self) -> KeyState:
        """The value that is kept for the key."""
        return KeyState(self._scope, self._key)

    def set_timer(self, when: datetime | timedelta | str, name: str = "") -> None:
        """Set an event-time timer of this key; one of the same name is replaced.

        It fires after all records of the key that are not later than its time, and before any that is. One for a time
        that has passed is set for ``time``, so it fires next.

        Args:
            when: the time, or how long after ``time`` (``timedelta(minutes=30)`` or ``"30 minutes"``).
            name: tells the timers of one key apart.

        Raises:
            ConfigurationError: ``when`` is a datetime without a time zone, or neither a time nor a length of time.
        """
        time = _micros(when, self._time)
        earliest = self._time if self._clock is TimerClock.EVENT_TIME else time
        self._scope.set_timer(self._scope.event_timers, self._key, _name(name), max(time, earliest))

    def cancel_timer(self, name: str = "") -> None:
        """Cancel the event-time timer of that name, if it is set."""
        self._scope.set_timer(self._scope.event_timers, self._key, _name(name), None)

    def set_wall_clock_timer(self, when: datetime | timedelta | str, name: str = "") -> None:
        """Set a timer by the clock of the machine; one of the same name is replaced.

        It fires at the end of the first micro-batch of its task that is at that time or later: one that brings it
        records, or a row of ``ticks``. So results depend on when the job runs; whatever can be told from the records'
        times should use ``set_timer``.

        Args:
            when: the time, or how long after ``wall_clock``.
            name: tells the timers of one key apart; event-time timers have names of their own.

        Raises:
            ConfigurationError: as for ``set_timer``.
        """
        time = _micros(when, self._scope.wall_clock)
        self._scope.set_timer(self._scope.wall_timers, self._key, _name(name), time)

    def cancel_wall_clock_timer(self, name: str = "") -> None:
        """Cancel the wall-clock timer of that name, if it is set."""
        self._scope.set_timer(self._scope.wall_timers, self._key, _name(name), None)


class KeyedProcessor(ABC):
    """A rule of your own, by key, with state and timers.

    ``process`` and ``on_timer`` return the rows of the result, or nothing; generators will do. They are called for one
    key in the order of time, records and event-time timers interleaved, however the records arrived. So the results
    for a key depend on the records of that key and on nothing else, as long as none is later than the stated
    lateness: not on other keys, the number of tasks, or the bounds of micro-batches. Only rules depend on more that
    ask for it: by ``context.wall_clock``, ``context.input_complete``, and timers that set themselves without end, which
    fire as long as their task's time moves.

    If it raises, the micro-batch fails and nothing of it is kept. Where the job's ``on_error`` leaves failing records
    out, that record or timer alone has no effect: no results, and no changes of state and timers.

    Every task has a copy of its own, made anew for each micro-batch on Spark. So attributes are configuration and
    connections; what must last from record to record is ``context.state``.

    >>> from datetime import UTC, datetime, timedelta
    >>> import pyarrow as pa
    >>> class Unpaid(KeyedProcessor):
    ...     def process(self, key, row, context):
    ...         if row["event"] == "ordered":
    ...             context.set_timer(timedelta(minutes=30))
    ...         elif row["event"] == "paid":
    ...             context.cancel_timer()
    ...
    ...     def on_timer(self, key, timer, context):
    ...         yield {"order": key, "unpaid_at": f"{context.time:%H:%M}"}

    ``Millpond.apply`` runs it on a DataFrame, and ``Pond.apply`` on rows in this process:

    >>> from millpond import Pond
    >>> midnight = datetime(2026, 6, 1, tzinfo=UTC)
    >>> orders = [
    ...     {"order": order, "event": event, "at": midnight + timedelta(minutes=minute)}
    ...     for order, event, minute in (("a", "ordered", 0), ("b", "ordered", 10), ("a", "paid", 20))
    ... ]
    >>> columns = pa.schema([("order", pa.string()), ("unpaid_at", pa.string())])
    >>> Pond().apply(orders, Unpaid(), key="order", time="at", schema=columns).to_pylist()
    [{'order': 'b', 'unpaid_at': '00:40'}]
    """

    def open(self) -> None:
        """Called before the first record of a task; on Spark, of each micro-batch of a task."""

    @abstractmethod
    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> Iterable[Mapping[str, Any]] | None:
        """Handle a record.

        Args:
            key: the key's value; of a key of several columns, the tuple of its values.
            row: the columns by name.
            context: state, timers and times.

        Returns:
            Rows of the result, by column; None for none.
        """

    def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> Iterable[Mapping[str, Any]] | None:
        """Handle a timer; a rule that sets timers overrides this.

        Args:
            key: as in ``process``.
            timer: the timer; it is no longer set.
            context: its ``time`` is the timer's.

        Returns:
            Rows of the result, by column; None for none.
        """
        raise InvalidArgumentError(f"{type(self).__name__} sets timers, but does not override on_timer; define it")

    def close(self) -> None:
        """Called after the last record of a task; on Spark, of each micro-batch of a task."""


def _micros(when: datetime | timedelta | str, start: int) -> int:
    """Return a time in microseconds; a length of time is counted from ``start``."""
    if isinstance(when, datetime):
        return from_datetime(when, "the time of a timer")
    if isinstance(when, timedelta | str):
        return start + to_micros(when, "the time until a timer")
    raise InvalidTimeError(f"a timer was set for {when!r}; give a datetime, a timedelta, or text such as '5 minutes'")


def _name(name: str) -> bytes:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"the name of a timer is {name!r}; give text")
    return name.encode()
