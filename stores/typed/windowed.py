"""``Windowed``: a key in a span of time."""

from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K")


class Windowed(NamedTuple, Generic[K]):
    """A key, and the span of time that an entry belongs to, in milliseconds.

    Whether ``end`` belongs to it depends on the kind: to a session it does, to a window it does not.
    """

    key: K
    start: int
    end: int
