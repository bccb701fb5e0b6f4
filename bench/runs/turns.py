"""Contenders in turn, run after run, so that noise on the machine affects all alike; one that fails is out.

Rule of this module: it knows contenders by their labels alone.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from millpond.bench.runs.summary import middle_run

Watch: TypeAlias = Callable[[str, str], None]
"""Called with the workload and the contender of each run when it has ended."""

Runs: TypeAlias = list[dict[str, Any]]


class Labeled(Protocol):
    """A contender."""

    @property
    def label(self) -> str:
        """The name of the contender; no two have the same."""


C = TypeVar("C", bound=Labeled)


def in_turn(
    workload: str, contenders: Sequence[C], repeat: int, run: Callable[[C, int], dict[str, Any]], watch: Watch
) -> tuple[dict[str, Runs], dict[str, str]]:
    """Run each contender so often.

    Args:
        workload: what ``watch`` is told.
        contenders: who takes part.
        repeat: how often.
        run: runs one, given the number of the run; what it gives has ``failure`` if the run failed.
        watch: called for each run.

    Returns:
        What the runs of each contender gave, and why those failed that did, by their labels.
    """
    found: dict[str, Runs] = {one.label: [] for one in contenders}
    failed: dict[str, str] = {}
    for number in range(repeat):
        for one in contenders:
            if one.label not in failed:
                came = run(one, number)
                watch(workload, one.label)
                found[one.label].append(came)
                if "failure" in came:
                    failed[one.label] = came["failure"]
    return found, failed


def figures_in_turn(
    workload: str,
    contenders: Sequence[C],
    cannot: Callable[[C], str | None],
    repeat: int,
    run: Callable[[C, int], dict[str, Any]],
    watch: Watch,
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Run each contender so often that can take part.

    Args:
        workload: what results, failures and ``watch`` call it.
        contenders: all of them.
        cannot: why one takes no part, None if it does.
        repeat: how often.
        run: runs one, as in ``in_turn``.
        watch: called for each run.

    Returns:
        The results, each of a middle run, and the failures with their reasons, both in the order of the contenders.
    """
    reasons = {one.label: why for one in contenders if (why := cannot(one)) is not None}
    able = [one for one in contenders if one.label not in reasons]
    found, failed = in_turn(workload, able, repeat, run, watch)
    reasons |= failed
    about = {one.label: {"contender": one.label, "workload": workload} for one in contenders}
    return (
        [{**who, **middle_run(found[label])} for label, who in about.items() if label not in reasons],
        [{**who, "reason": reasons[label]} for label, who in about.items() if label in reasons],
    )
