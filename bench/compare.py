"""The comparison of two runs of the same benchmark: changes beyond the noise.

Rule of this module: a change is what both runs agree on. The throughput of a contender with a workload has changed if
no run of the one file lies among the runs of the other, and if the ratio of the medians is larger than the spread: the
larger one of the two files' ratios of the fastest to the slowest run. With fewer than ``LEAST_RUNS`` runs in either
file nothing can be said.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from millpond.bench.documents import Document, Result, Throughput
from millpond.bench.report import as_json
from millpond.errors import ConfigurationError

LEAST_RUNS = 3

_OWN_PACKAGE = "millpond"
_NOT_COMPARED = ("clock_ns", "repeat")
_MACHINE = "machine"

Pair = tuple[str, str]


class Verdict(StrEnum):
    """The verdict on a throughput in two files."""

    FASTER = "faster"
    SLOWER = "slower"
    WITHIN_NOISE = "within the noise"
    TOO_FEW_RUNS = "too few runs"


STYLES: Final = {
    Verdict.FASTER: "green",
    Verdict.SLOWER: "bold red",
    Verdict.WITHIN_NOISE: "dim",
    Verdict.TOO_FEW_RUNS: "yellow",
}


@dataclass(frozen=True)
class Change:
    """A contender with a workload in both files: throughputs, and latencies at p99 in µs, if any.

    ``ratio`` is that of the medians, new to old, and ``spread`` that of the fastest to the slowest run.
    """

    workload: str
    contender: str
    old: float
    new: float
    ratio: float
    spread: float
    old_p99_us: float | None
    new_p99_us: float | None
    verdict: Verdict


@dataclass(frozen=True)
class Difference:
    """A difference between the circumstances of two files, which makes it unfair to compare them."""

    what: str
    old: Any
    new: Any

    def is_of_machine(self) -> bool:
        """Return whether the machine differs, which contenders of the same file have shared."""
        return self.what.startswith(f"{_MACHINE} ")


@dataclass(frozen=True)
class Comparison:
    """All that two files say beside each other. What only one has is named by workload and contender.

    ``unit`` is what throughputs count.
    """

    benchmark: str
    unit: str
    differences: list[Difference]
    changes: list[Change]
    only_old: list[Pair]
    only_new: list[Pair]
    failed: list[Pair]
    """The pairs that the old file has and the new one tried in vain."""

    def slower(self, percent: float) -> bool:
        """Return whether anything lost more than ``percent`` of its throughput beyond the noise, or fails now."""
        lost = (change for change in self.changes if change.verdict is Verdict.SLOWER)
        return bool(self.failed) or any(100 * (1 - change.ratio) > percent for change in lost)

    def text(self) -> str:
        """Return the same as JSON, without a machine: nothing is measured here."""
        return as_json(asdict(self))


def compared(old: Document, new: Document) -> Comparison:
    """Compare both files, in the order of the old one.

    Raises:
        ConfigurationError: they are of different benchmarks, or their throughputs count different things.
    """
    for what, one, other in (("the benchmark", old.benchmark, new.benchmark), ("a throughput in", old.unit, new.unit)):
        if one != other:
            raise ConfigurationError(
                f"the old file has {what} {one}, the new one {what} {other}; only alike ones can be compared"
            )
    before, after = _by_pair(old), _by_pair(new)
    both = {contender.label for contender in old.contenders} & {contender.label for contender in new.contenders}
    tried = {(failure.workload, failure.contender) for failure in new.failures}
    only_old = [pair for pair in before if pair not in after]
    return Comparison(
        benchmark=old.benchmark,
        unit=old.unit,
        differences=list(differences(old, new, both)),
        changes=[_change(before[pair], after[pair]) for pair in before if pair in after],
        only_old=only_old,
        only_new=[pair for pair in after if pair not in before],
        failed=[pair for pair in only_old if pair in tried],
    )


def judged(old: Throughput, new: Throughput) -> Verdict:
    """Return the verdict on a throughput, by the rule of this module."""
    if min(len(old.runs), len(new.runs)) < LEAST_RUNS:
        return Verdict.TOO_FEW_RUNS
    ratio, spread = new.median / old.median, _spread(old, new)
    if old.high < new.low and ratio > spread:
        return Verdict.FASTER
    if new.high < old.low and 1 / ratio > spread:
        return Verdict.SLOWER
    return Verdict.WITHIN_NOISE


def differences(old: Document, new: Document, labels: Collection[str]) -> Iterator[Difference]:
    """Yield what differs between the circumstances of two files, and of the contenders called ``labels`` in them.

    Millpond's own version is left out: its changes are what a comparison is about.
    """
    before, after = _circumstances(old, labels), _circumstances(new, labels)
    for what in dict.fromkeys([*before, *after]):
        if before.get(what) != after.get(what):
            yield Difference(what, before.get(what), after.get(what))


def print_comparison(console: Console, comparison: Comparison, *, everything: bool = False) -> None:
    """Print what changed, or ``everything`` that both files have, what only one has, and what makes it unfair."""
    if comparison.differences:
        console.print("[yellow]Not measured alike, so a change may have other reasons:[/]")
        for difference in comparison.differences:
            console.print(f"  {difference.what}: {difference.old} -> {difference.new}", markup=False)
    settled = (Verdict.WITHIN_NOISE,) if not everything else ()
    shown = [change for change in comparison.changes if change.verdict not in settled]
    if shown:
        console.print(_table(shown, comparison.unit))
    counts = {verdict: sum(change.verdict is verdict for change in comparison.changes) for verdict in Verdict}
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    for heading, pairs in (("only in OLD", comparison.only_old), ("only in NEW", comparison.only_new)):
        for workload, contender in pairs:
            failed = ", failed in NEW" if (workload, contender) in comparison.failed else ""
            console.print(f"{heading}{failed}: {workload}, {contender}", markup=False)


def _by_pair(results: Document) -> dict[Pair, Result]:
    return {(one.workload, one.contender): one for name in results.workloads() for one in results.of(name).values()}


def _change(old: Result, new: Result) -> Change:
    return Change(
        workload=old.workload,
        contender=old.contender,
        old=old.throughput.median,
        new=new.throughput.median,
        ratio=new.throughput.median / old.throughput.median,
        spread=_spread(old.throughput, new.throughput),
        old_p99_us=old.latency.get("p99"),
        new_p99_us=new.latency.get("p99"),
        verdict=judged(old.throughput, new.throughput),
    )


def _spread(*throughputs: Throughput) -> float:
    return max(one.high / one.low for one in throughputs)


def _circumstances(results: Document, labels: Collection[str]) -> dict[str, Any]:
    machine = {name: value for name, value in results.machine.items() if name != "packages"}
    packages = {name: value for name, value in results.machine["packages"].items() if name != _OWN_PACKAGE}
    settings = {name: value for name, value in results.settings.items() if name not in _NOT_COMPARED}
    found = _named(_MACHINE, machine) | _named("package", packages) | _named("setting", settings)
    for one in (contender for contender in results.contenders if contender.label in labels):
        version = {} if one.distribution == _OWN_PACKAGE else {"version": one.version}
        promises = {"durability": one.durability, "cache": one.cache, **version}
        found |= {f"{what} of {one.label}": text for what, text in promises.items()}
    return found


def _named(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{kind} {name}": value for name, value in values.items()}


def _table(changes: Sequence[Change], unit: str) -> Table:
    table = Table(title=f"{unit} per second, medians")
    for place, name in enumerate(("workload", "contender", "old", "new", "new/old", "spread", "p99 us", "")):
        table.add_column(name, justify="left" if place in (0, 1, 7) else "right", overflow="fold")
    for change in changes:
        table.add_row(
            Text(change.workload),
            Text(change.contender),
            f"{change.old:,.0f}",
            f"{change.new:,.0f}",
            f"{change.ratio:.2f}x",
            f"{change.spread:.2f}x",
            f"{_latency(change.old_p99_us)} -> {_latency(change.new_p99_us)}",
            Text(change.verdict, STYLES[change.verdict]),
        )
    return table


def _latency(microseconds: float | None) -> str:
    return "-" if microseconds is None else f"{microseconds:,.1f}"
