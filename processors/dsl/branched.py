"""``BranchedKStream``: a stream that is being split.

Rule of this module: nothing is added to the graph before the split ends: then a node that chooses, and one node after
it for each branch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from millpond.errors import TopologyError
from millpond.processors.dsl.wiring.stream import StreamHandle
from millpond.processors.streams.stateless import Predicate, StreamBranch, StreamPass

S = TypeVar("S")


@dataclass(frozen=True)
class Split:
    """A split in progress.

    Attributes:
        stream: the stream that is split.
        prefix: the beginning of the names of all branches.
        branches: predicates and full names, in the order in which they are tried.
    """

    stream: StreamHandle
    prefix: str
    branches: tuple[tuple[Predicate, str], ...] = ()

    def branch(self, predicate: Predicate, name: str | None) -> "Split":
        """Return the same with one more branch, named by its position unless it has a name."""
        full = f"{self.prefix}{name or len(self.branches) + 1}"
        return replace(self, branches=(*self.branches, (predicate, full)))


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
        split = self._split
        if not split.branches:
            raise TopologyError(
                f"the split of {split.stream.node!r} has no branches; each branch() returns a new object, so chain "
                "the calls, or continue with what the last one returned"
            )
        router = split.stream.then("", partial(StreamBranch, split.branches), f"{split.prefix}split")
        return {name: self._wrap(router.then("", StreamPass, name)) for _, name in split.branches}
