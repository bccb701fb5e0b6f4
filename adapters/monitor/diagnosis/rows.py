"""Rules of the input: late rows, rows that cannot be used, times that jump, a listing without the last files.

Rule of this module: a rule is a function of figures alone.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from millpond.adapters.monitor.diagnosis import thresholds as at_least
from millpond.adapters.monitor.diagnosis import units
from millpond.adapters.monitor.diagnosis.figures import Figures
from millpond.adapters.monitor.diagnosis.finding import Finding, State
from millpond.adapters.monitor.diagnosis.lives import ended_by
from millpond.adapters.monitor.kept.micro_batch import MicroBatch
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.metrics import TaskMetric

_POISON: Final = (
    CounterName.DROPPED_BAD_KEY,
    CounterName.DROPPED_BAD_TIMESTAMP,
    CounterName.DROPPED_BAD_VALUE,
    CounterName.DROPPED_USER_ERROR,
)
_MICROS: Final = 1_000


def late_data(figures: Figures) -> Finding | None:
    """Find an operator with many records that come too late."""
    window = figures.batches[-at_least.DATA_BATCHES :]
    late: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    latest: Counter[str] = Counter()
    for one in window:
        for report in one.reports:
            late[report.operator] += sum(report.late.values())
            taken[report.operator] += report.figure(TaskMetric.RECORDS_IN)
            latest[report.operator] = max(latest[report.operator], report.figures.get(TaskMetric.LATENESS, 0))
    for operator, records in late.most_common():
        share = records / max(1, taken[operator])
        if records >= at_least.LATE_LEAST and share >= at_least.LATE_SHARE:
            first = next(one for one in window if any(sum(report.late.values()) for report in one.reports))
            return Finding(
                State.LATE,
                f"{units.number(records)} of {units.number(taken[operator])} records of {operator} were late in the "
                f"last {len(window)} micro-batches, {share:.1%}; the latest came {_length(latest[operator])} too late",
                first.started,
                "look at late_rows() for which grace would have taken them, and at the source for why they come late",
            )
    return None


def _length(micros: int) -> str:
    return units.duration(micros / _MICROS)


def poison_rows(figures: Figures) -> Finding | None:
    """Find rows that cannot be used: they are left out, or the last run ended by one."""
    ended = ended_by(State.POISON, figures)
    if ended is not None:
        return ended
    window = figures.batches[-at_least.DATA_BATCHES :]
    found: Counter[tuple[str, str]] = Counter()
    for one in window:
        for place, records in _poison(one).items():
            found[place] += records
    if found.total() < at_least.POISON_LEAST:
        return None
    (operator, reason), records = found.most_common(1)[0]
    return Finding(
        State.POISON,
        f"{units.number(found.total())} rows could not be used in the last {len(window)} micro-batches; "
        f"{units.number(records)} of {operator} by {reason}",
        next(one for one in window if _poison(one)).started,
        "look at the dead letters, or at what the counter means, and correct the source, the serde or the function",
    )


def _poison(one: MicroBatch) -> dict[tuple[str, str], int]:
    """Return how many rows could not be used, by operator and reason."""
    found: dict[tuple[str, str], int] = {}
    for report in one.reports:
        for name, records in report.dropped.items():
            reason = name.rpartition(":")[2]
            if reason in _POISON and records:
                found[report.operator, reason] = found.get((report.operator, reason), 0) + records
    return found


def clock_jumps(figures: Figures) -> Finding | None:
    """Find that the driver's clock went back, or that stream time is ahead of the clock."""
    batches = figures.batches
    for before, after in reversed(list(pairwise(batches[-at_least.DATA_BATCHES :]))):
        back = before.started - after.started
        if before.run == after.run and before.batch < after.batch and back >= at_least.CLOCK_BACK:
            return Finding(
                State.CLOCK,
                f"micro-batch {after.batch} was begun {units.duration(back)} before micro-batch {before.batch}, which "
                "it follows: the driver's clock went back",
                after.started,
                "see to the clock of the driver's machine (NTP, a machine that was suspended or moved); what goes by "
                "the wall clock waits until it has come as far again",
            )
    return _future(batches[-at_least.IN_A_ROW :])


def _future(last: Sequence[MicroBatch]) -> Finding | None:
    ahead = {one.batch: _ahead(one) for one in last}
    if len(last) < at_least.IN_A_ROW or min(ahead.values()) < at_least.CLOCK_AHEAD:
        return None
    return Finding(
        State.CLOCK,
        f"stream time was {units.duration(ahead[last[-1].batch])} ahead of the clock in the last micro-batch, and "
        f"ahead in the {len(last) - 1} before: records are from the future, or the clocks of workers are behind",
        last[0].started,
        "set max_ahead, which leaves such records out; reset_stream_time takes back what they have moved on",
    )


def _ahead(one: MicroBatch) -> int:
    """Return how far the earliest task of an operator is ahead of the clock, in milliseconds."""
    lags = [report.figures[TaskMetric.STREAM_LAG] for report in one.reports if TaskMetric.STREAM_LAG in report.figures]
    return max((-lag // _MICROS for lag in lags), default=0)


def listing_lags(figures: Figures) -> Finding | None:
    """Find that the storage does not list micro-batches that were committed."""
    numbers = sorted(figures.committed)
    missing = _missing(numbers)
    if missing:
        return Finding(
            State.LISTING,
            f"the checkpoint has micro-batches {numbers[0]} to {numbers[-1]}, and its listing lacks {missing[0]}"
            + (f", and {len(missing) - 1} more" if len(missing) > 1 else ""),
            min(at for number, at in figures.committed.items() if number > missing[0]),
            _LISTED,
        )
    last = figures.batches[-1] if figures.batches else None
    if last is None or last.batch <= max(numbers, default=-1):
        return None
    ended = last.started + last.took
    if figures.at - ended < at_least.LISTING_LAGS:
        return None
    return Finding(
        State.LISTING,
        f"micro-batch {last.batch} ended {units.duration(figures.at - ended)} ago, as its progress tells, and the "
        f"listing of the checkpoint ends with {max(numbers, default=-1)}",
        ended,
        _LISTED,
    )


def _missing(numbers: Sequence[int]) -> list[int]:
    """Return the micro-batches that others follow, and that follow others: Spark deletes old ones in any order."""
    there = {*numbers}
    followed = range(numbers[0], numbers[-1]) if numbers else range(0)
    return [one for one in followed if one not in there and there.issuperset(range(one - at_least.LISTED, one))]


_LISTED: Final = (
    "look whether the checkpoint is a copy, or was put back from one; else its storage lists late: a cache or a "
    "gateway is between, and Spark must not be started on it"
)
