"""The findings of a benchmark, as its JSON file has them: read, checked and typed.

Rule of this module: it is the only one that knows the names in the file. What is missing there or of the wrong type
is refused with its place; other names are left alone, since a benchmark may have more to tell.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

from millpond.bench.json_parts import Part
from millpond.errors import ConfigurationError

BENCHMARKS: Final = ("engines", "stores", "processors", "spark", "nexmark", "latency")
"""The benchmarks that write such documents."""

SCHEMA: Final = 2
UNITS: Final = ("operations", "rows", "records")
"""The things that a throughput may count."""

_BRIEF = ("benchmark", "schema", "date", "command", "machine", "unit", "settings", "contenders", "results", "failures")
_BRIEF_RESULT = ("contender", "workload", "operations", "throughput", "latency_us", "cpu_s")
_BRIEF_QUERY = ("ratios", "ratios_of", "checked_rows")
_DIGITS = 6

PERCENTILES = {"p50": "p50", "p90": "p90", "p99": "p99", "p99_9": "p99.9", "max": "max"}
"""The names of percentiles in the file, and for a reader."""


@dataclass(frozen=True)
class Contender:
    """A contender. ``kind`` is backend, engine (a backend's own, without Millpond) or peer."""

    name: str
    kind: str
    label: str
    version: str
    durability: str
    distribution: str
    cache: str = ""


@dataclass(frozen=True)
class Throughput:
    """The throughput per second in the runs, in the unit of the document."""

    median: float
    low: float
    high: float
    runs: tuple[float, ...]


@dataclass(frozen=True)
class Result:
    """The result of one contender with one workload. Latencies are in microseconds, by the names of ``PERCENTILES``.

    Only the throughput is always there. What was not measured has no entries, or ``None``.
    """

    contender: str
    workload: str
    operations: int
    throughput: Throughput
    latency: Mapping[str, float]
    by_operation: Mapping[str, Mapping[str, float]]
    over_time: tuple[tuple[float, float], ...]
    cpu_s: float | None
    peak_rss_bytes: float | None
    disk_bytes: float | None
    write_amplification: float | None


@dataclass(frozen=True)
class Failure:
    """Why there is no result of a contender with a workload."""

    contender: str
    workload: str
    reason: str


@dataclass(frozen=True)
class Query:
    """The ratios and checks that a document has of a workload on Spark, beside the results.

    Attributes:
        own: the contender whose time is 1 in ``ratios``.
        ratios: by peer, how many times as much time as ``own`` it takes.
        checked_rows: by contender, how many rows of its answer were compared with the right one.
    """

    own: str
    ratios: Mapping[str, float]
    checked_rows: Mapping[str, float]


@dataclass(frozen=True)
class Document:
    """The whole file.

    ``date`` is the day when it was measured, as YYYY-MM-DD, which files of before 1.0.0 do not say.
    ``machine`` is what ``millpond.bench.report.machine`` says, and ``unit`` what throughputs count, in the plural.
    ``queries`` has entries by workload if it ran on Spark.
    """

    benchmark: str
    unit: str
    command: str
    date: str | None
    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    contenders: tuple[Contender, ...]
    results: tuple[Result, ...]
    failures: tuple[Failure, ...]
    queries: Mapping[str, Query]

    @property
    def version(self) -> str:
        """The version of Millpond; none if it was not installed as a package."""
        return str(self.machine["packages"].get("millpond", ""))

    def workloads(self) -> list[str]:
        """Return the names of the workloads, in the order in which they were measured."""
        measured = [result.workload for result in self.results]
        return list(dict.fromkeys([*measured, *(failure.workload for failure in self.failures)]))

    def of(self, workload: str) -> dict[str, Result]:
        """Return the results of a workload by contender, in the order of the contenders."""
        found = {result.contender: result for result in self.results if result.workload == workload}
        return {one.label: found[one.label] for one in self.contenders if one.label in found}


def read_json(path: Path) -> object:
    """Return the content of a JSON file.

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


def read_document(path: Path) -> Document:
    """Return the document in a file.

    Raises:
        ConfigurationError: there is no such file, or it holds something else.
    """
    return parsed_document(read_json(path), str(path))


def parsed_document(content: object, origin: str = "the document") -> Document:
    """Return the document that a file of JSON called ``origin`` holds.

    Raises:
        ConfigurationError: it is not one of these benchmarks and this schema, or something in it is missing or wrong.
    """
    whole = Part(content, "", origin)
    benchmark = _benchmark(whole)
    contenders = tuple(_contender(part) for part in whole.parts("contenders"))
    labels = [contender.label for contender in contenders]
    results = tuple(_result(part, labels) for part in whole.parts("results"))
    pairs = [f"{result.contender} with {result.workload}" for result in results]
    for what, names in (("contender", labels), ("result", pairs)):
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None:
            raise ConfigurationError(f"{origin} has the {what} {twice} twice; each may be there once")
    return Document(
        benchmark=benchmark,
        unit=_unit(whole),
        command=whole.text("command"),
        date=_date(whole),
        machine=_machine(whole.part("machine")),
        settings=whole.part("settings").values,
        contenders=contenders,
        results=results,
        failures=tuple(_failure(part) for part in whole.parts("failures")),
        queries=_queries(whole),
    )


def in_brief(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document, as JSON has it, without what takes much room and is not compared with that of another day.

    It is a document as before, with numbers of six digits.
    """
    queries = {
        workload: {name: query[name] for name in _BRIEF_QUERY if name in query}
        for workload, query in content.get("queries", {}).items()
    }
    results = [{name: one[name] for name in _BRIEF_RESULT if one.get(name) is not None} for one in content["results"]]
    brief = {name: content[name] for name in _BRIEF if name in content} | {"results": results}
    more = {"backend": content["backend"], "queries": queries} if queries else {}
    return {name: _rounded(value) for name, value in (brief | more).items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(part) for name, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value


def _date(whole: Part) -> str | None:
    found = whole.text_if_any("date")
    if found is not None and not is_date(found):
        raise whole.wrong("date", f"is {found!r}, and not a day such as 2026-11-30")
    return found


def is_date(text: str) -> bool:
    """Return whether it is a day as a document has it.

    >>> is_date("2026-11-30"), is_date("2026-11-31"), is_date("20261130")
    (True, False, False)
    """
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _queries(whole: Part) -> Mapping[str, Query]:
    """Return what a document has on each query; older ones leave out whose ratios these are if it is the backend."""
    queries = whole.part_if_any("queries")
    if queries is None:
        return {}
    parts = {workload: queries.part(workload) for workload in queries.values}
    return {
        workload: Query(
            own=part.text_if_any("ratios_of") or whole.text("backend"),
            ratios=_numbers(part.part_if_any("ratios")),
            checked_rows=_numbers(part.part_if_any("checked_rows")),
        )
        for workload, part in parts.items()
    }


def _numbers(part: Part | None) -> Mapping[str, float]:
    return {} if part is None else {name: part.number(name) for name in part.values}


def _benchmark(whole: Part) -> str:
    found, schema = whole.text("benchmark"), whole.values.get("schema")
    if found not in BENCHMARKS:
        raise ConfigurationError(
            f"{whole.origin} has figures of the benchmark {found!r}, which come without their runs; only those of "
            f"'millpond bench' {_listed(BENCHMARKS)} can be used here"
        )
    if schema != SCHEMA:
        is_newer = isinstance(schema, int) and schema > SCHEMA
        raise ConfigurationError(
            f"{whole.origin} has {'no schema' if schema is None else f'schema {schema!r}'}, and this release reads "
            f"{SCHEMA}; " + ("update Millpond" if is_newer else f"measure again: millpond bench {found} --json FILE")
        )
    return found


def _unit(whole: Part) -> str:
    unit = whole.text_if_any("unit") or UNITS[0]
    if unit not in UNITS:
        raise whole.wrong("unit", f"is {unit!r}, and not {_listed(UNITS)}")
    return unit


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _machine(part: Part) -> Mapping[str, Any]:
    part.part("packages")
    return part.values


def _contender(part: Part) -> Contender:
    names = ("name", "kind", "label", "version", "durability", "distribution", "cache")
    return Contender(**{name: part.text(name) for name in names if name != "cache" or name in part.values})


def _failure(part: Part) -> Failure:
    return Failure(*(part.text(name) for name in ("contender", "workload", "reason")))


def _result(part: Part, labels: Iterable[str]) -> Result:
    if part.text("contender") not in labels:
        raise part.wrong("contender", f"is {part.text('contender')!r}, which is the label of no contender")
    kinds, latency = part.part_if_any("by_operation"), part.part_if_any("latency_us")
    return Result(
        contender=part.text("contender"),
        workload=part.text("workload"),
        operations=int(part.number("operations", positive=True)),
        throughput=_throughput(part.part("throughput")),
        latency={} if latency is None else _latency(latency),
        by_operation={} if kinds is None else {name: _latency(kinds.part(name)) for name in kinds.values},
        over_time=part.points_if_any("over_time"),
        cpu_s=part.number_if_any("cpu_s"),
        peak_rss_bytes=part.number_if_any("peak_rss_bytes"),
        disk_bytes=part.number_if_any("disk_bytes"),
        write_amplification=part.number_if_any("write_amplification"),
    )


def _throughput(part: Part) -> Throughput:
    median, low, high = (part.number(name, positive=True) for name in ("median", "min", "max"))
    runs = part.numbers("runs")
    if not low <= median <= high or (low, high) != (min(runs), max(runs)):
        raise part.wrong("", "does not agree with its runs")
    return Throughput(median, low, high, runs)


def _latency(part: Part) -> dict[str, float]:
    return {name: part.number(name) for name in PERCENTILES}
