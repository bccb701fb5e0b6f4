"""``KeyTimer``: a timer of a key of ``apply``, set by an edit instead of a rule."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from millpond.errors import InvalidTimeError
from millpond.stores.typed.layouts import Layout

_TIMERS = "keyed-timers"


def holds_timers(layout: Layout | None) -> bool:
    """Return whether the rows of a layout are the timers of keys."""
    return layout is not None and layout.name == _TIMERS


@dataclass(frozen=True)
class KeyTimer:
    """A timer.

    Attributes:
        key: the bytes of its key.
        name: as the rule sets it.
        wall_clock: whether it goes by the clock of the machine, and not by event time.
    """

    key: bytes
    name: str
    wall_clock: bool

    def move(self, store: Any, time: int | None) -> datetime | None:
        """Set it for a time in microseconds, or without one delete it; for when it was set until now.

        Raises:
            ConfigurationError: no calendar has the time.
        """
        # Only now, because it brings all processors with it.
        from millpond.processors.verbs.encoding.python_values import to_datetime
        from millpond.processors.verbs.key_timers import KeyTimers, TimerClock

        try:
            to_datetime(time or 0)
        except OverflowError as error:
            raise InvalidTimeError(f"a rule cannot get the time {time} us: {error}; give a datetime") from error
        timers = KeyTimers(store, TimerClock.WALL_CLOCK if self.wall_clock else TimerClock.EVENT_TIME)
        name = self.name.encode()
        before = timers.now(self.key, name)
        timers.reset(self.key, name, time)
        timers.save()
        return None if before is None else to_datetime(before)
