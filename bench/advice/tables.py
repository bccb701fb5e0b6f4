"""The advice as tables and sentences to read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from millpond.bench.advice.description import Description
from millpond.bench.advice.judgement import Advice, Verdict
from millpond.bench.advice.measured import Spread
from millpond.bench.advice.measuring import Measurements
from millpond.bench.numbers import size

_OPERATIONS: Final = ("read", "write of a row", "scan", "expiry")


def print_advice(
    console: Console,
    description: Description,
    assumed: Sequence[str],
    measurements: Measurements,
    advice: Advice,
    caveats: Sequence[str],
) -> None:
    """Print what was described, what was measured, the advice, what would change it, and what is not known."""
    mix = mix_of(asdict(description))
    console.print(
        f"{description.keys:,} keys of {description.key_bytes} + {description.value_bytes} bytes "
        f"({size(description.data_bytes)}); {mix}; commits of {description.batch:,} rows; "
        f"{size(description.memory_bytes)} of memory, {size(description.disk_bytes)} of disk",
        highlight=False,
    )
    _listed(console, "taken from elsewhere or assumed", assumed)
    console.print(_measured(description, measurements, advice))
    for line in (*_chosen(description, advice), *_others(advice)):
        console.print(escape(line), highlight=False, soft_wrap=True)
    _listed(console, "what would change this", advice.changes)
    _listed(console, "what the figures do not say", caveats)


def mix_of(described: Mapping[str, Any]) -> str:
    """Return the shares of operations, from the fields of a description."""
    shares = {"reads": described["reads"], "scans": described["scans"], "expiring": described["expiring"]}
    writes = max(0.0, 1 - sum(shares.values()))
    mix = f"{shares['reads']:.0%} reads, {writes:.0%} writes, {shares['scans']:.0%} scans"
    return f"{mix}, {shares['expiring']:.0%} expiring" if shares["expiring"] else mix


def reasons(description: Description, advice: Advice) -> list[str]:
    """Return the reasons for the advised backend."""
    return list(_reasons(description, advice))


def caveats(description: Description, advice: Advice) -> list[str]:
    """Return sentences on what the figures do not say."""
    return list(_caveats(description, advice))


def to_dict(
    description: Description,
    assumed: Sequence[str],
    measurements: Measurements,
    advice: Advice,
    notes: Sequence[str],
) -> dict[str, Any]:
    """Return the same as JSON has it."""
    return {
        "schema": 1,
        "description": asdict(description),
        "assumed": list(assumed),
        "settings": dict(measurements.settings),
        "backends": [_verdict(one) for one in advice.verdicts],
        "advice": None
        if advice.chosen is None
        else {
            "backend": advice.chosen.measured.url,
            "options": [asdict(one) for one in advice.chosen.measured.choices],
            "reasons": reasons(description, advice),
            "tied": [one.measured.backend for one in advice.tied],
            "changes": list(advice.changes),
        },
        "caveats": list(notes),
    }


def _verdict(one: Verdict) -> dict[str, Any]:
    return {
        **asdict(one.measured),
        "url": one.measured.url,
        "fits": one.why_not is None,
        "why_not": one.why_not,
        "memory_needed_bytes": one.memory_needed,
        "disk_needed_bytes": one.disk_needed,
        "per_operation_us": None if one.per_operation is None else asdict(one.per_operation),
        "times_speak": one.speaks,
    }


def _measured(description: Description, measurements: Measurements, advice: Advice) -> Table:
    times = description.keys / max(1, measurements.rows)
    table = Table(
        title=f"microseconds, median and least to most, with stores of {measurements.rows:,} rows; there will be "
        f"{times:,.3g} times as many"
    )
    table.add_column("backend", no_wrap=True)
    for column in (*_OPERATIONS, "the mix", "memory/row", "disk/row", "needs memory", "needs disk"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("fits")
    for one in advice.verdicts:
        table.add_row(escape(one.measured.url), *_cells(description, one), "yes" if one.why_not is None else "no")
    return table


def _cells(description: Description, one: Verdict) -> Iterator[str]:
    times, room = one.measured.times, one.measured.room
    scan = None
    if times is not None and times.seek is not None and times.step is not None:
        scan = times.seek.and_(times.step.times(description.scan_rows - 1))
    each = (None, None, None, None) if times is None else (times.read, times.write, scan, times.expire)
    yield from map(_spread, each)
    yield _spread(one.per_operation)
    yield "" if room is None or one.measured.persistent else f"{room.memory_per_row:,.0f} B"
    yield "" if room is None or not one.measured.persistent else f"{room.disk_peak_per_row:,.0f} B"
    yield size(one.memory_needed) if one.memory_needed else ""
    yield size(one.disk_needed) if one.disk_needed else ""


def _spread(found: Spread | None) -> str:
    return "" if found is None else f"{found.median:,.2f}\n{found.low:,.2f} to {found.high:,.2f}"


def _chosen(description: Description, advice: Advice) -> Iterator[str]:
    yield ""
    if advice.chosen is None:
        yield "Nothing that was measured fits:"
        return
    yield f"Use   {advice.chosen.measured.url}"
    yield ""
    for reason in _reasons(description, advice):
        yield f"- {reason}"


def _reasons(description: Description, advice: Advice) -> Iterator[str]:
    chosen = advice.chosen
    if chosen is None or chosen.per_operation is None:
        return
    if advice.tied:
        names = ", ".join(one.measured.backend for one in advice.tied)
        yield (
            f"As fast as each other within the noise: {names}. Between them the lower risk decides: first a local "
            "copy that is still there after a restart, then checksums of the engine, then less disk."
        )
    fitting = [one for one in advice.verdicts if one.why_not is None and one.measured is not chosen.measured]
    for one in fitting:
        if one.per_operation is None or one in advice.tied:
            continue
        if not one.speaks and chosen.speaks:
            yield (
                f"{one.measured.backend} comes after it whatever its time: its files outgrow the memory, it has "
                "no cache that could be scaled down, and so it was measured from the system's page cache alone."
            )
        else:
            times = one.per_operation.median / chosen.per_operation.median
            yield f"{one.measured.backend} takes {times:.2f} times as long for an operation of the mix."
    if chosen.measured.persistent:
        yield "Its local copy stays on the disk over a restart; only a worker without one restores it."
    else:
        yield (
            f"It has no local copy: each worker that starts restores its rows ({size(description.data_bytes)} in all) "
            "from the durable files."
        )
    for choice in chosen.measured.choices:
        yield f"{choice.option}={choice.value}: {choice.reason}."
    yield from (f"{note}." for note in chosen.measured.notes)


def _others(advice: Advice) -> Iterator[str]:
    for one in advice.verdicts:
        if one.why_not is not None:
            yield f"- Not {one.measured.backend}: {one.why_not}."


def _caveats(description: Description, advice: Advice) -> Iterator[str]:
    yield (
        "Times are those of the engine behind Millpond's contract, with rows by chance; decoding, Spark and durable "
        "files come on top, and are the same for all backends."
    )
    yield "Values were bytes that do not compress: with others, engines that compress take less disk than is said here."
    room = [one.measured.room for one in advice.verdicts if one.measured.room is not None and one.measured.persistent]
    if any(one.disk_per_row * description.keys > description.memory_bytes for one in room):
        yield (
            "The files will be larger than the memory, and those of the short runs were not: no read that had to wait "
            "for the disk was measured, of any backend."
        )
    yield "What a disk does after hours of writing, such as compactions of large levels, does not show in short runs."


def _listed(console: Console, title: str, lines: Sequence[str]) -> None:
    if lines:
        console.print(f"\n{title}:", highlight=False)
    for line in lines:
        console.print(f"- {escape(line)}", highlight=False, soft_wrap=True)
