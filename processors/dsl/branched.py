"""``BranchedKStream``: a stream that is being split."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from millpond.processors.dsl.wiring.branches import Split
from millpond.processors.dsl.wiring.stream import StreamHandle
from millpond.processors.streams.stateless import Predicate

S = TypeVar("S")


def _everything(key: Any, value: Any) -> bool:
    return True


class BranchedKStream(Generic[S]):
    """Collects branches; ``default_branch`` or ``no_default_branch`` ends the split and returns them by name.

    A record goes to the first branch whose predicate is true for it. A branch without a name is named by its position
    (``"1"``, ``"2"``, ...), the default branch ``"0"``; all names begin with the name given to ``split``.
    """

    def __init__(self, split: Split, wrap: Callable[[StreamHandle], S]) -> None:
        self._split = split
        self._wrap = wrap

    def branch(self, predicate: Predicate, *, name: str | None = None) -> "BranchedKStream[S]":
        """Return the stream with one more branch, of records for which ``predicate(key, value)`` is first true."""
        return BranchedKStream(self._split.branch(predicate, name), self._wrap)

    def default_branch(self, *, name: str | None = None) -> dict[str, S]:
        """Return all branches by name, with one more for the records that match no other."""
        return self.branch(_everything, name=name or "0").no_default_branch()

    def no_default_branch(self) -> dict[str, S]:
        """Return all branches by name; records that match none are dropped.

        Raises:
            TopologyError: there are no branches.
        """
        return {name: self._wrap(stream) for name, stream in self._split.end().items()}
