"""``BranchedKStream``: a stream on its way into several."""

from typing import TYPE_CHECKING, Self

from millpond.errors import TopologyError
from millpond.processors.streams.stateless import Predicate, StreamBranch, StreamPass

if TYPE_CHECKING:
    from millpond.processors.dsl.kstream import KStream


class BranchedKStream:
    """Collects branches; ``default_branch`` or ``no_default_branch`` ends it and gives them by name.

    A record goes to the first branch whose predicate is true for it. A branch without a name is called by its position
    (``"1"``, ``"2"``, ...), the default branch ``"0"``; all names begin with the name given to ``split``.
    """

    def __init__(self, stream: "KStream", name: str | None) -> None:
        self._stream = stream
        self._prefix = name or stream.graph.new_name("KSTREAM-BRANCH-") + "-"
        self._router = stream.then("KSTREAM-BRANCH-", lambda: StreamBranch(self._branches), f"{self._prefix}split")
        self._branches: list[tuple[Predicate, str]] = []
        self._streams: dict[str, KStream] = {}
        self._ended = False

    def branch(self, predicate: Predicate, *, name: str | None = None) -> Self:
        """Add a branch for the records for which ``predicate(key, value)`` is true, and no earlier branch's is."""
        self._add(predicate, name or str(len(self._branches) + 1))
        return self

    def default_branch(self, *, name: str | None = None) -> dict[str, "KStream"]:
        """All branches by name, with one more for the records that nobody wanted."""
        self._add(lambda key, value: True, name or "0")
        return self.no_default_branch()

    def no_default_branch(self) -> dict[str, "KStream"]:
        """All branches by name; records that nobody wanted are dropped."""
        self._ended = True
        return dict(self._streams)

    def _add(self, predicate: Predicate, name: str) -> None:
        if self._ended:
            raise TopologyError(
                f"the branches of {self._router.node!r} are complete; add all before the default branch"
            )
        full = f"{self._prefix}{name}"
        self._streams[full] = self._router.then("KSTREAM-BRANCHCHILD-", StreamPass, full)
        self._branches.append((predicate, full))
