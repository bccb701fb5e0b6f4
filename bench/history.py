"""The history of a benchmark: the same measurement of several days, in a file that grows, and how its figures moved.

Rule of this module: a line of the file is a document in brief, as ``documents`` reads it; and what counts as a change
is the rule of ``compare``, between a figure and the same one of the measurement before. Nothing is said where the two
were not measured alike. Of ratios, the machine may differ: both sides of a ratio have shared it.
"""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from millpond.bench.compare import STYLES, Difference, Verdict, differences, judged
from millpond.bench.documents import Document, Throughput, in_brief, is_date, parsed_document, read_json
from millpond.bench.numbers import counted, shown
from millpond.bench.ratios import ratios
from millpond.bench.report import write_text
from millpond.errors import ConfigurationError

_SUFFIX: Final = ".jsonl"
_Key = tuple[str, str, str | None]

MOVED: Final = (Verdict.FASTER, Verdict.SLOWER)


@dataclass(frozen=True)
class Entry:
    """A measurement: a document in brief as JSON has it, the same parsed, and its day."""

    content: Mapping[str, Any]
    document: Document
    date: str


@dataclass(frozen=True)
class Step:
    """A figure in one measurement.

    Attributes:
        place: the number of the measurement in the history, from 0 on.
        found: the throughput per second, or the ratio to the peer.
        differences: what was not alike in the measurement before that has the figure.
        verdict: that on the change since then; None for the first, and for what was not measured alike.
    """

    place: int
    found: Throughput
    differences: tuple[Difference, ...]
    verdict: Verdict | None


@dataclass(frozen=True)
class Figure:
    """The throughput of a contender with a workload, or its ratio to that of ``peer``, in all measurements it is in."""

    workload: str
    contender: str
    peer: str | None
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        """The name within the workload: the contender, and behind a slash the peer of a ratio."""
        return self.contender if self.peer is None else f"{self.contender} / {self.peer}"

    def moves(self) -> Iterator[tuple[Step, Step]]:
        """Yield each change beyond the noise: the figure before and after it."""
        return ((before, after) for before, after in pairwise(self.steps) if after.verdict in MOVED)


@dataclass(frozen=True)
class History:
    """The measurements of a benchmark, in the order of their days."""

    name: str
    entries: tuple[Entry, ...]

    def with_entry(self, entry: Entry) -> "History":
        """Return the history with another measurement.

        Raises:
            ConfigurationError: the measurement is of another benchmark, or counts other things.
        """
        for what in ("benchmark", "unit"):
            new = getattr(entry.document, what)
            old = next((getattr(other.document, what) for other in self.entries), new)
            if old != new:
                raise ConfigurationError(
                    f"the history of {self.name} has the {what} {old}, and the new measurement the {what} {new}; give "
                    "the file of the measurement another name, and it gets a history of its own"
                )
        return replace(self, entries=tuple(sorted([*self.entries, entry], key=lambda one: one.date)))

    def day(self, place: int) -> str:
        """Return the day of a measurement, with its number on that day if there are several."""
        days = [entry.date for entry in self.entries]
        several = days.count(days[place]) > 1
        return f"{days[place]} ({days[: place + 1].count(days[place])})" if several else days[place]

    def before(self, entry: Entry) -> Entry | None:
        """Return the measurement before one of the history, if there is one."""
        place = self.entries.index(entry)
        return self.entries[place - 1] if place else None

    def figures(self) -> list[Figure]:
        """Return all figures, with ratios behind throughputs, each in the order in which they first appear."""
        throughputs: dict[_Key, list[tuple[int, Throughput]]] = {}
        beside: dict[_Key, list[tuple[int, Throughput]]] = {}
        for place, entry in enumerate(self.entries):
            for one in entry.document.results:
                throughputs.setdefault((one.workload, one.contender, None), []).append((place, one.throughput))
            for ratio in ratios(entry.document):
                beside.setdefault((ratio.workload, ratio.own, ratio.peer), []).append((place, ratio.times))
        return [Figure(*key, tuple(self._steps(key, found))) for key, found in (throughputs | beside).items()]

    def costs(self) -> list[Figure]:
        """Return the processor time per row in microseconds, of which each measurement has one value: never judged."""
        found: dict[_Key, list[tuple[int, Throughput]]] = {}
        for place, entry in enumerate(self.entries):
            for one in entry.document.results:
                if not one.cpu_s:
                    continue
                each = one.cpu_s * 1e6 / one.operations
                value = Throughput(each, each, each, (each,))
                found.setdefault((one.workload, one.contender, None), []).append((place, value))
        return [Figure(*key, tuple(self._steps(key, values))) for key, values in found.items()]

    def _steps(self, key: _Key, found: list[tuple[int, Throughput]]) -> Iterator[Step]:
        _, contender, peer = key
        yield Step(*found[0], (), None)
        for (before, old), (place, new) in pairwise(found):
            documents = (self.entries[before].document, self.entries[place].document)
            differing = differences(*documents, {contender} if peer is None else {contender, peer})
            unlike = tuple(one for one in differing if peer is None or not one.is_of_machine())
            yield Step(place, new, unlike, None if unlike else judged(old, new))


@dataclass(frozen=True)
class Addition:
    """A file of results that was to be added to the history in ``path``.

    ``entry`` is None if it was there already, and ``before`` the measurement before it, if there is one.
    """

    path: Path
    entry: Entry | None
    before: Entry | None


def add(files: Sequence[Path], into: Path | None, day: str | None) -> list[Addition]:
    """Add files of results to their histories: all of them, or none if one is refused.

    Args:
        files: those that ``--json`` of benchmarks has written. The history of one is a file of its name.
        into: the folder of the histories; by default ``history`` beside each file.
        day: when the files were measured, if they do not say it.

    Raises:
        ConfigurationError: a file is none of results or of another benchmark, or its day is missing or wrong.
    """
    histories: dict[Path, History] = {}
    added: list[tuple[Path, Entry | None]] = []
    for results in files:
        path = (into or results.parent / "history") / f"{results.stem}{_SUFFIX}"
        if path not in histories:
            histories[path] = read_history(path) if path.exists() else History(path.stem, ())
        histories[path], entry = with_file(histories[path], results, day)
        added.append((path, entry))
    for path in dict.fromkeys(path for path, entry in added if entry is not None):
        write_history(histories[path], path)
    return [Addition(path, entry, entry and histories[path].before(entry)) for path, entry in added]


def read_history(path: Path) -> History:
    """Return the history in a file.

    Raises:
        ConfigurationError: there is no such file, or it holds something else.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    entries = [_entry(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    return History(path.stem, tuple(sorted(entries, key=lambda one: one.date)))


def with_file(history: History, results: Path, day: str | None) -> tuple[History, Entry | None]:
    """Return the history with the measurement in a file of results, and the measurement; None if it was there already.

    Args:
        history: the one of these results.
        results: the file that ``--json`` of a benchmark has written.
        day: when it was measured, if the file does not say it.

    Raises:
        ConfigurationError: it is no such file or of another benchmark, or the day is missing, there twice, or none.
    """
    content = read_json(results)
    found = parsed_document(content, str(results))
    assert isinstance(content, Mapping)
    if day is not None and not is_date(day):
        raise ConfigurationError(f"--date is {day!r}, and not a day such as 2026-11-30")
    if found.date is not None and day is not None:
        raise ConfigurationError(f"{results} says itself that it was measured on {found.date}; leave out --date")
    date = found.date or day
    brief = in_brief({**content, "date": date})
    if any(_same(brief, other.content) for other in history.entries):
        return history, None
    if date is None:
        raise ConfigurationError(
            f"{results} does not say when it was measured, as files of before 1.0.0; say it: "
            f"{shlex.join(['millpond', 'bench', 'history', 'add', str(results), '--date'])} YYYY-MM-DD"
        )
    entry = Entry(brief, parsed_document(brief, str(results)), date)
    return history.with_entry(entry), entry


def write_history(history: History, path: Path) -> None:
    """Write a history, a line for each measurement."""
    lines = (json.dumps(entry.content, ensure_ascii=False, separators=(",", ":")) for entry in history.entries)
    write_text(path, "".join(f"{line}\n" for line in lines))


def moved(figures: Iterable[Figure]) -> list[tuple[Figure, Step, Step]]:
    """Return all changes beyond the noise, the newest first."""
    found = [(figure, before, after) for figure in figures for before, after in figure.moves()]
    return sorted(found, key=lambda one: -one[2].place)


def print_moved(console: Console, history: History) -> None:
    """Print the measurements of a history, and each change beyond the noise."""
    days = ", ".join(map(history.day, range(len(history.entries))))
    console.print(f"{history.name}, {counted(len(history.entries), 'measurement')}: {days}", markup=False)
    if len(history.entries) < 2:
        return
    figures = history.figures()
    found = moved(figures)
    if found:
        console.print(_table(history, found))
    steps = [step for figure in figures for step in figure.steps[1:]]
    counts = {verdict: sum(step.verdict is verdict for step in steps) for verdict in Verdict}
    unlike = sum(step.verdict is None for step in steps)
    console.print(", ".join([*(f"{count} {verdict}" for verdict, count in counts.items()), f"{unlike} not alike"]))


def _table(history: History, found: Sequence[tuple[Figure, Step, Step]]) -> Table:
    table = Table()
    for name in ("workload", "figure", "from", "to", "before", "after", "after/before", ""):
        table.add_column(name, justify="right" if name in ("before", "after", "after/before") else "left")
    for figure, before, after in found:
        table.add_row(
            Text(figure.workload),
            Text(figure.name),
            *(history.day(step.place) for step in (before, after)),
            *(shown(step.found.median) for step in (before, after)),
            f"{after.found.median / before.found.median:.2f}x",
            Text(str(after.verdict), STYLES[after.verdict] if after.verdict else ""),
        )
    return table


def _entry(line: str, origin: str) -> Entry:
    try:
        content = json.loads(line)
    except ValueError as error:
        raise ConfigurationError(f"{origin} is not JSON ({error}); give a file of 'bench history add'") from error
    document = parsed_document(content, origin)
    if document.date is None:
        raise ConfigurationError(f"{origin} has no date, so no 'millpond bench history add' has written it")
    return Entry(content, document, document.date)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two documents have the same figures, whatever day was said of them."""
    return {**one, "date": None} == {**other, "date": None}
