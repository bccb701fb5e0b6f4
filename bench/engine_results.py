"""What ``millpond bench engines`` has found, as its JSON file has it: read, checked and typed.

Rule of this module: it is the only one that knows the names in the file. Whatever is missing there or of the wrong type
is refused with its place; names that this release does not know are left alone.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.errors import ConfigurationError

BENCHMARK = "engines"
SCHEMA = 1
PERCENTILES = {"p50": "p50", "p90": "p90", "p99": "p99", "p99_9": "p99.9", "max": "max"}
"""How the file names each percentile, and how a reader does."""


@dataclass(frozen=True)
class Contender:
    """One of those measured. ``kind`` is backend, engine (that of a backend, without Millpond) or peer."""

    name: str
    kind: str
    label: str
    version: str
    durability: str
    distribution: str
    cache: str = ""


@dataclass(frozen=True)
class Throughput:
    """Operations per second of each run."""

    median: float
    low: float
    high: float
    runs: tuple[float, ...]


@dataclass(frozen=True)
class Result:
    """What one contender did with one workload. Latencies are in microseconds, by the names of ``PERCENTILES``."""

    contender: str
    workload: str
    operations: int
    throughput: Throughput
    latency: Mapping[str, float]
    by_operation: Mapping[str, Mapping[str, float]]
    over_time: tuple[tuple[float, float], ...]
    cpu_s: float
    peak_rss_bytes: float
    disk_bytes: float
    write_amplification: float | None


@dataclass(frozen=True)
class Failure:
    """Why there is no result of a contender with a workload."""

    contender: str
    workload: str
    reason: str


@dataclass(frozen=True)
class EngineResults:
    """The whole file. ``machine`` is what ``millpond.bench.report.machine`` says."""

    command: str
    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    contenders: tuple[Contender, ...]
    results: tuple[Result, ...]
    failures: tuple[Failure, ...]

    def workloads(self) -> list[str]:
        """The names of the workloads, in the order in which they were measured."""
        measured = [result.workload for result in self.results]
        return list(dict.fromkeys([*measured, *(failure.workload for failure in self.failures)]))

    def of(self, workload: str) -> dict[str, Result]:
        """The results of a workload by contender, in the order of the contenders."""
        found = {result.contender: result for result in self.results if result.workload == workload}
        return {one.label: found[one.label] for one in self.contenders if one.label in found}


def read_document(path: Path) -> object:
    """What a file of JSON holds.

    Raises:
        ConfigurationError: there is no such file, or it is not JSON.
    """
    try:
        document: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path} is not JSON ({error}); give a file that --json has written") from error
    return document


def read_results(path: Path) -> EngineResults:
    """The results in a file.

    Raises:
        ConfigurationError: there is no such file, or it holds something else.
    """
    return parsed_results(read_document(path), str(path))


def parsed_results(document: object, origin: str = "the document") -> EngineResults:
    """The results in a document that was read from ``origin``.

    Raises:
        ConfigurationError: it is not one of this benchmark and schema, or something in it is missing or wrong.
    """
    whole = _Part(document, "", origin)
    _expect(whole, origin)
    contenders = tuple(_contender(part) for part in whole.parts("contenders"))
    labels = [contender.label for contender in contenders]
    results = tuple(_result(part, labels) for part in whole.parts("results"))
    pairs = [f"{result.contender} with {result.workload}" for result in results]
    for what, names in (("contender", labels), ("result", pairs)):
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None:
            raise ConfigurationError(f"{origin} has the {what} {twice} twice; each may be there once")
    return EngineResults(
        command=whole.text("command"),
        machine=_machine(whole.part("machine")),
        settings=whole.part("settings").values,
        contenders=contenders,
        results=results,
        failures=tuple(_failure(part) for part in whole.parts("failures")),
    )


class _Part:
    """A JSON object at a place of a file, and its entries, each of the type that is asked for."""

    def __init__(self, value: object, place: str, origin: str) -> None:
        self._place, self._origin = place, origin
        if not isinstance(value, Mapping):
            raise self.wrong("", "is not an object")
        self.values: Mapping[str, Any] = value

    def wrong(self, name: str, what: str) -> ConfigurationError:
        place = ".".join(filter(None, (self._place, name))) or "the whole file"
        return ConfigurationError(f"{self._origin}: {place} {what}, so it is no file of 'millpond bench {BENCHMARK}'")

    def _get(self, name: str) -> Any:
        if name not in self.values:
            raise self.wrong(name, "is missing")
        return self.values[name]

    def text(self, name: str) -> str:
        value = self._get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "is not a string")
        return value

    def number(self, name: str, *, positive: bool = False) -> float:
        value = self._get(name)
        if not _is_number(value) or value < 0 or (positive and value == 0):
            raise self.wrong(name, f"is not a number {'above' if positive else 'of at least'} zero")
        return float(value)

    def number_if_any(self, name: str) -> float | None:
        return None if self.values.get(name) is None else self.number(name)

    def part(self, name: str) -> "_Part":
        return _Part(self._get(name), ".".join(filter(None, (self._place, name))), self._origin)

    def part_if_any(self, name: str) -> "_Part | None":
        return None if self.values.get(name) is None else self.part(name)

    def listed(self, name: str) -> list[Any]:
        value = self._get(name)
        if not isinstance(value, list):
            raise self.wrong(name, "is not a list")
        return value

    def parts(self, name: str) -> Iterator["_Part"]:
        for place, value in enumerate(self.listed(name)):
            yield _Part(value, f"{name}[{place}]", self._origin)

    def numbers(self, name: str) -> tuple[float, ...]:
        values = self.listed(name)
        if not values or not all(_is_number(value) and value > 0 for value in values):
            raise self.wrong(name, "is not a list of numbers above zero")
        return tuple(map(float, values))

    def points(self, name: str) -> tuple[tuple[float, float], ...]:
        values = self.listed(name)
        pairs = all(isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)) for value in values)
        if not pairs or any(x < 0 or y < 0 for x, y in values):
            raise self.wrong(name, "is not a list of pairs of numbers of at least zero")
        return tuple((float(x), float(y)) for x, y in values)


def _expect(whole: _Part, origin: str) -> None:
    found, schema = whole.values.get("benchmark"), whole.values.get("schema")
    if not isinstance(found, str):
        raise whole.wrong("benchmark", "is missing")
    if found != BENCHMARK:
        raise ConfigurationError(
            f"{origin} has figures of the benchmark {found!r}; only those of 'millpond bench {BENCHMARK}' can be used "
            "here, because they have every run"
        )
    if schema != SCHEMA:
        raise ConfigurationError(f"{origin} has schema {schema!r}, and this release knows {SCHEMA}; measure again")


def _machine(part: _Part) -> Mapping[str, Any]:
    part.part("packages")
    return part.values


def _contender(part: _Part) -> Contender:
    names = ("name", "kind", "label", "version", "durability", "distribution", "cache")
    return Contender(**{name: part.text(name) for name in names if name != "cache" or name in part.values})


def _failure(part: _Part) -> Failure:
    return Failure(*(part.text(name) for name in ("contender", "workload", "reason")))


def _result(part: _Part, labels: Iterable[str]) -> Result:
    if part.text("contender") not in labels:
        raise part.wrong("contender", f"is {part.text('contender')!r}, which is the label of no contender")
    kinds = part.part_if_any("by_operation")
    return Result(
        contender=part.text("contender"),
        workload=part.text("workload"),
        operations=int(part.number("operations", positive=True)),
        throughput=_throughput(part.part("throughput")),
        latency=_latency(part.part("latency_us")),
        by_operation={} if kinds is None else {name: _latency(kinds.part(name)) for name in kinds.values},
        over_time=part.points("over_time"),
        cpu_s=part.number("cpu_s"),
        peak_rss_bytes=part.number("peak_rss_bytes"),
        disk_bytes=part.number("disk_bytes"),
        write_amplification=part.number_if_any("write_amplification"),
    )


def _throughput(part: _Part) -> Throughput:
    median, low, high = (part.number(name, positive=True) for name in ("median", "min", "max"))
    runs = part.numbers("runs")
    if not low <= median <= high or (low, high) != (min(runs), max(runs)):
        raise part.wrong("", "does not agree with its runs")
    return Throughput(median, low, high, runs)


def _latency(part: _Part) -> dict[str, float]:
    return {name: part.number(name) for name in PERCENTILES}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
