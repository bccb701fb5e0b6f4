"""``JoinWindows``: the windows in which records of two streams belong together, and their waiting time."""

from dataclasses import dataclass, field
from typing import Self

from millpond.errors import InvalidWindowError
from millpond.processors.options.given import fitted
from millpond.stores.encoding.times import Duration, to_millis


@dataclass(frozen=True, init=False)
class JoinWindows:
    """A left record at ``t`` joins the right records of its key from ``t - before`` to ``t + after``, both included.

    Args:
        before: how much older than the left record a right record may be.
        after: how much newer it may be. One of the two may be negative.
        grace: how long after a window's end out-of-order records still join. Both sides are kept that much longer, and
            a left or outer join holds a record without a partner back that much longer.
        eager: whether a left or outer join emits a record without a partner at once, joined with None (the "suggested"
            tables of KIP-77). Otherwise such a record comes out once, when its window and grace have passed, and only
            if no partner has come.
        drop_late: whether a record whose window and grace have passed is dropped and counted, on either side; one that
            might meet a record that has come out alone, as soon as its grace has. Otherwise, as in Kafka Streams, it
            joins what is still there of the other side, which may be nothing, and is not counted.

    Attributes:
        before, after, grace: the same, in milliseconds.

    Raises:
        TopologyError: before + after is negative, or the grace is.

    >>> JoinWindows.of(1000, grace=500)
    JoinWindows(before=1000, after=1000, grace=500, eager=False)
    """

    before: int
    after: int
    grace: int
    eager: bool
    drop_late: bool = field(repr=False)

    @fitted
    def __init__(
        self,
        before: Duration = 0,
        after: Duration = 0,
        grace: Duration = 0,
        *,
        eager: bool = False,
        drop_late: bool = False,
    ) -> None:
        for name, length in (("before", before), ("after", after), ("grace", grace)):
            object.__setattr__(self, name, to_millis(length, f"{name} of JoinWindows"))
        object.__setattr__(self, "eager", eager)
        object.__setattr__(self, "drop_late", drop_late)
        if self.size < 0:
            raise ends_early(before, after)
        if self.grace < 0:
            raise InvalidWindowError(f"{self}: the grace must not be negative")

    @classmethod
    def of(cls, difference: Duration, *, grace: Duration = 0, eager: bool = False, drop_late: bool = False) -> Self:
        """Join records whose times differ by ``difference`` or less.

        Raises:
            TopologyError: the difference or the grace is negative.
        """
        if to_millis(difference, "time difference of JoinWindows") < 0:
            raise InvalidWindowError(f"the time difference of JoinWindows must not be negative, but is {difference}")
        return cls(difference, difference, grace, eager=eager, drop_late=drop_late)

    @property
    def size(self) -> int:
        """The window's length in milliseconds."""
        return self.before + self.after


def ends_early(before: Duration, after: Duration) -> InvalidWindowError:
    """Return the error of a window whose bounds, as the user gave them, are no window."""
    return InvalidWindowError(
        f"the window of the join ends before it begins: before is {before!r} and after {after!r}; give "
        "lengths whose sum is not negative"
    )
