"""The wiring of a split stream: a node that chooses, and one node after it for each branch."""

from dataclasses import dataclass, replace
from functools import partial

from millpond.errors import TopologyError
from millpond.processors.dsl.wiring.stream import StreamHandle
from millpond.processors.streams.stateless import Predicate, StreamBranch, StreamPass


@dataclass(frozen=True)
class Split:
    """A split in progress; nothing is added to the graph before it ends.

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

    def end(self) -> dict[str, StreamHandle]:
        """Return the branches by name.

        Raises:
            TopologyError: there are none.
        """
        if not self.branches:
            raise TopologyError(
                f"the split of {self.stream.node!r} has no branches; each branch() returns a new object, so chain "
                "the calls, or continue with what the last one returned"
            )
        router = self.stream.then("", partial(StreamBranch, self.branches), f"{self.prefix}split")
        return {name: router.then("", StreamPass, name) for _, name in self.branches}


def begin_split(stream: StreamHandle, name: str | None) -> Split:
    """Return a split without branches; ``name`` is what their names begin with."""
    return Split(stream, name or stream.graph.new_name("KSTREAM-BRANCH-") + "-")
