"""The judgement on measured backends: the one that suits a description, and changes that would alter the choice.

Rule of this module: pure functions over measurements; it measures nothing and prints nothing. What was measured with
few rows is multiplied by the rows described, and by nothing else but the room that is stated here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from millpond.bench.advice.description import Description
from millpond.bench.advice.measured import Measured, Spread
from millpond.bench.numbers import size

ROOM: Final = 1.25
"""Memory and disk that a backend must have, as a multiple of what was measured: for what does not show in a short run,
such as a compaction, a copy on write or fragments of memory."""

NOISE: Final = 1.05
"""Medians closer than this are a tie, however narrow the runs were."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one backend.

    Attributes:
        measured: the backend.
        memory_needed: bytes that its rows must have in memory: all of them in a backend without files, else none.
        disk_needed: bytes that its files must have.
        per_operation: microseconds of one operation of the mix; None if it was not measured.
        speaks: whether the times were measured as the job will have them. They were not if the data is larger than
            the memory and the backend's cache cannot be made smaller for a short run.
        why_not: why it is out; None if it fits.
    """

    measured: Measured
    memory_needed: int
    disk_needed: int
    per_operation: Spread | None
    speaks: bool
    why_not: str | None


@dataclass(frozen=True)
class Advice:
    """The verdicts, with those that fit and the fastest first, and the advised one.

    Attributes:
        verdicts: of all backends.
        chosen: the one that is advised; None if none fits.
        tied: those that are as fast as the fastest one within the noise, if the choice was among several.
        changes: what would change the advice, a sentence each.
    """

    verdicts: tuple[Verdict, ...]
    chosen: Verdict | None
    tied: tuple[Verdict, ...]
    changes: tuple[str, ...]


def advise(description: Description, backends: Sequence[Measured]) -> Advice:
    """Return the advice, with what would change it."""
    found = judge(description, backends)
    return replace(found, changes=tuple(dict.fromkeys(_changes(description, backends, found))))


def judge(description: Description, backends: Sequence[Measured]) -> Advice:
    """Return the advice, without what would change it."""
    verdicts = sorted((verdict(description, one) for one in backends), key=_order)
    fitting = [one for one in verdicts if one.why_not is None]
    if not fitting:
        return Advice(tuple(verdicts), None, (), ())
    level = [one for one in fitting if one.speaks == fitting[0].speaks]
    limit = max(_spread(level[0]).high, _spread(level[0]).median * NOISE)
    tied = [one for one in level if _spread(one).low <= limit]
    return Advice(tuple(verdicts), min(tied, key=risk), tuple(tied) if len(tied) > 1 else (), ())


def verdict(description: Description, measured: Measured) -> Verdict:
    """Return whether a backend fits, and what an operation of the mix takes."""
    room, keys = measured.room, description.keys
    memory = disk = 0
    if room is not None:
        memory = 0 if measured.persistent else round(room.memory_per_row * keys * ROOM)
        disk = round(room.disk_peak_per_row * keys * ROOM) if measured.persistent else 0
    cached = room is not None and room.disk_per_row * keys <= description.memory_bytes
    speaks = not measured.persistent or measured.cache_scaled or cached
    each = per_operation(description, measured)
    return Verdict(measured, memory, disk, each, speaks, _why_not(description, measured, memory, disk, each))


def per_operation(description: Description, measured: Measured) -> Spread | None:
    """Return the microseconds of one operation of the mix: the measured operations, weighed by their shares."""
    times = measured.times
    if times is None or (description.scans and (times.seek is None or times.step is None)):
        return None
    if description.expiring and times.expire is None:
        return None
    total = times.read.times(description.reads).and_(times.write.times(description.writes))
    if times.seek is not None and times.step is not None:
        scan = times.seek.and_(times.step.times(description.scan_rows - 1))
        total = total.and_(scan.times(description.scans))
    if times.expire is not None:
        total = total.and_(times.expire.times(description.expiring))
    return total


def risk(verdict: Verdict) -> tuple[bool, bool, int, float, str]:
    """Return the risk that decides between backends that are as fast: the one with the least is advised.

    A local copy that is still there after a restart comes first, then an engine with checksums, then less disk.
    """
    one = verdict.measured
    return not one.persistent, not one.checksums, verdict.disk_needed, _spread(verdict).median, one.backend


def most_keys(description: Description, verdict: Verdict) -> int:
    """Return the number of keys up to which the backend fits, and its times speak."""
    room = verdict.measured.room
    assert room is not None, "a backend that fits was measured"
    limits = []
    if not verdict.measured.persistent:
        limits.append(description.memory_bytes / (room.memory_per_row * ROOM))
    elif room.disk_peak_per_row:
        limits.append(description.disk_bytes / (room.disk_peak_per_row * ROOM))
        if not verdict.measured.cache_scaled:
            limits.append(description.memory_bytes / room.disk_per_row)
    return int(min(limits, default=10**15))


def _why_not(description: Description, measured: Measured, memory: int, disk: int, each: Spread | None) -> str | None:
    if measured.failure is not None:
        return f"it could not be measured: {measured.failure}"
    if measured.room is None or each is None:
        return "not all that is asked for was measured"
    if memory > description.memory_bytes:
        return (
            f"it keeps all rows in memory: {description.keys:,} of {measured.room.memory_per_row:,.0f} bytes, times "
            f"{ROOM:g} for room, are {size(memory)}, and there are {size(description.memory_bytes)}"
        )
    if disk > description.disk_bytes:
        return (
            f"it needs {description.keys:,} rows of {measured.room.disk_peak_per_row:,.0f} bytes on the disk, times "
            f"{ROOM:g} for room, which are {size(disk)}, and there are {size(description.disk_bytes)}"
        )
    return None


def _changes(description: Description, backends: Sequence[Measured], found: Advice) -> Iterator[str]:
    if found.chosen is not None:
        most = most_keys(description, found.chosen)
        if description.keys < most < 100 * description.keys:
            then = judge(with_keys(description, most + 1), backends).chosen
            why = "its rows no longer fit" if _out(description, found.chosen, most + 1) else "its data outgrows memory"
            yield f"With more than {most:,} keys {why}; then {_named(then)}."
    for one in found.verdicts:
        if one.memory_needed > description.memory_bytes and one.per_operation is not None:
            enough = replace(description, memory_bytes=one.memory_needed)
            then = judge(enough, backends).chosen
            if then is not None and then.measured.backend == one.measured.backend:
                less = size(description.memory_bytes)
                yield f"With {size(one.memory_needed)} of memory instead of {less}: {_named(then)}."
    mixes = [("only reads", 1.0), ("only writes", 0.0)]
    for name, reads in mixes:
        other = replace(description, reads=reads, scans=0.0, expiring=0.0)
        then = judge(other, backends).chosen
        if then is not None and found.chosen is not None and then.measured.backend != found.chosen.measured.backend:
            yield f"With {name}: {_named(then)}."
    if found.chosen is not None and not found.chosen.measured.persistent:
        kept = [one for one in backends if one.persistent]
        then = judge(description, kept).chosen
        if then is not None:
            times = _spread(then).median / _spread(found.chosen).median
            yield (
                f"If a restart must not wait until all rows are restored: {_named(then)}, with {times:.1f} times the "
                "time per operation."
            )


def with_keys(description: Description, keys: int) -> Description:
    """Return the description with another number of keys, and longer ones if there are not so many."""
    return replace(description, keys=keys, key_bytes=max(description.key_bytes, (keys.bit_length() + 7) // 8))


def _out(description: Description, verdict_: Verdict, keys: int) -> bool:
    return verdict(with_keys(description, keys), verdict_.measured).why_not is not None


def _named(then: Verdict | None) -> str:
    return "nothing that was measured fits" if then is None else then.measured.backend


def _order(verdict: Verdict) -> tuple[bool, bool, float, str]:
    each = verdict.per_operation
    median = float("inf") if each is None else each.median
    return verdict.why_not is not None, not verdict.speaks, median, verdict.measured.backend


def _spread(verdict: Verdict) -> Spread:
    assert verdict.per_operation is not None, "a backend that fits was measured"
    return verdict.per_operation
