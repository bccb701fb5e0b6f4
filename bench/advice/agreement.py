"""The agreement of an advice with a job: no pair of backends that both tell apart stands in opposite order.

Rule of this module: pure functions; it measures nothing. What one of the two cannot tell apart beyond the noise, it
says nothing about.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from millpond.bench.advice.judgement import NOISE, Advice, Verdict
from millpond.bench.advice.measured import Spread


@dataclass(frozen=True)
class Agreement:
    """The result of the comparison.

    Attributes:
        both: the pairs that advice and job tell apart, the quicker one first, in the order of the job.
        against: the pairs among them that the advice has the other way round.
    """

    both: tuple[tuple[str, str], ...]
    against: tuple[tuple[str, str], ...]


def advised_pairs(advice: Advice) -> set[tuple[str, str]]:
    """Return the pairs of backends of which the advice prefers the first one.

    One that fits comes before one that does not, one whose times speak before one whose times do not, and of two that
    are alike in that the quicker one, if it is quicker beyond the noise.
    """
    pairs = permutations(advice.verdicts, 2)
    return {(one.measured.backend, other.measured.backend) for one, other in pairs if _preferred(one, other)}


def _preferred(one: Verdict, other: Verdict) -> bool:
    ranks = [(each.why_not is not None, not each.speaks) for each in (one, other)]
    if ranks[0] != ranks[1] or one.per_operation is None or other.per_operation is None:
        return ranks[0] < ranks[1]
    return quicker(one.per_operation, other.per_operation)


def job_pairs(runs: Mapping[str, Sequence[float]]) -> list[tuple[str, str]]:
    """Return the pairs of backends of which the job took less time on the first one, in the order of that time.

    Args:
        runs: the seconds of a micro-batch in each run of the job, by backend.
    """
    spreads = {name: spread_of(seconds) for name, seconds in runs.items()}
    ordered = sorted(spreads, key=lambda name: (spreads[name].median, name))
    return [(one, other) for one, other in permutations(ordered, 2) if quicker(spreads[one], spreads[other])]


def agreement(advised: set[tuple[str, str]], ran: Sequence[tuple[str, str]]) -> Agreement:
    """Return how far advice and job agree on the same backends."""
    both = [pair for pair in ran if pair in advised or pair[::-1] in advised]
    return Agreement(tuple(both), tuple(pair for pair in both if pair not in advised))


def quicker(one: Spread, other: Spread) -> bool:
    """Return whether all runs of one were quicker than those of the other, with medians apart beyond the noise."""
    return one.high < other.low and one.median * NOISE < other.median


def spread_of(runs: Sequence[float]) -> Spread:
    """Return the median of runs, the least and the most."""
    ordered = sorted(runs)
    return Spread(ordered[(len(ordered) - 1) // 2], ordered[0], ordered[-1])
