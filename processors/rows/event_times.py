"""Event times as a reader judges them: the unit that they count, and how far they may be ahead of the wall clock.

Rule of this module: it is the only place of the readers that reads a clock, once for each chunk: the worker's, or
if it is apart from the clock of the state directory, the latter, so that all workers judge alike.
"""

from dataclasses import dataclass
from datetime import MAXYEAR, datetime, timedelta

from millpond.stores.durability.storage.clock import wall_clock_us
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.times import MAX_TIME, TimeUnit


@dataclass(frozen=True)
class EventTimes:
    """The event times of one input. Travels to the workers.

    Attributes:
        unit: the unit that they count, since 1970.
        max_ahead: how far they may be ahead of the wall clock, in microseconds; None for any distance.
        storage: the state directory, whose clock counts if it is apart from the worker's; None for the worker's.
    """

    unit: TimeUnit
    max_ahead: int | None
    storage: Storage | None = None

    @property
    def first_year(self) -> int:
        """The year before which no event time is usable: that of the epoch, as in Kafka, or for verbs year 1."""
        return 1 if self.unit is TimeUnit.MICROSECOND else 1970

    @property
    def earliest(self) -> int:
        """The earliest event time that is usable, in their own unit."""
        return self._beginning_of(self.first_year)

    @property
    def last(self) -> int:
        """The last event time that is usable, in their own unit: for verbs the end of the last year."""
        if self.unit is not TimeUnit.MICROSECOND:
            return MAX_TIME
        return (datetime.max - datetime(1970, 1, 1)) // timedelta(microseconds=self.unit)

    @property
    def never(self) -> int:
        """The event time from which on rows of tables are never valid: the last year that calendars have."""
        return self._beginning_of(MAXYEAR)

    def _beginning_of(self, year: int) -> int:
        return (datetime(year, 1, 1) - datetime(1970, 1, 1)) // timedelta(microseconds=self.unit)

    def now(self) -> int:
        """Return the wall-clock time, in microseconds since 1970; nobody needs it without ``max_ahead``."""
        return wall_clock_us(self.storage)

    def latest(self, now: int) -> int:
        """Return the latest event time that is not too far ahead of ``now``, in their own unit."""
        assert self.max_ahead is not None
        return min((now + self.max_ahead) // self.unit, MAX_TIME)

    def objection(self, event_time: int, now: int) -> str:
        """Return the words of a message about an event time, in its own unit, that is too far ahead of ``now``."""
        assert self.max_ahead is not None
        return (
            f"{self.unit.shown(event_time)} is more than {timedelta(microseconds=self.max_ahead)} (max_ahead) ahead of "
            f"the wall clock, {TimeUnit.MICROSECOND.shown(now)}; if these times do not follow it, set "
            "max_ahead=None or a longer one"
        )
