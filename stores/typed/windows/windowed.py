"""``Windowed``: a key in a span of time."""

from typing import Final, Generic, NamedTuple, TypeVar

K = TypeVar("K")

TIME_WINDOWED: Final = "time-windowed"
"""The name of serdes that write a key and, behind it, the start of a window: eight bytes."""

SESSION_WINDOWED: Final = "session-windowed"
"""The name of serdes that write a key and, behind it, end and start of a session: eight bytes each."""

SUFFIX_SIZES: Final = {TIME_WINDOWED: 8, SESSION_WINDOWED: 16}
"""The number of bytes that these serdes write behind a key."""


class Windowed(NamedTuple, Generic[K]):
    """A key, and the span of time that an entry belongs to, in milliseconds.

    ``end`` belongs to a session, but not to a window.
    """

    key: K
    start: int
    end: int
