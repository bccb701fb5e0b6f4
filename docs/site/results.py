"""The pages of results: whatever a file of figures has in it, as tables.

Rule of this module: it knows the parts that every file has (``millpond.bench.report`` writes them) and no benchmark.
Figures are shown, never computed.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeGuard

OVERVIEW = "runs/README.md"

_UNITS = {"s": "s", "us": "µs", "mib": "MiB", "gib": "GiB"}
_BEHIND = "---\nsearch:\n  exclude: true\n---"
"""The front matter that keeps figures out of the search, which finds the pages that explain a word."""
_LONGEST = 12
"""The longest series of figures in a cell of a table."""
_KINDS = "by operation "
_ABOUT = ("machine", "command", "benchmark", "schema", "unit")


def run_page(path: Path, plots: str | None = None) -> str:
    """Return the page of one file of figures; series over time are left to the page of ``plots``, if one is named.

    Raises:
        ValueError: the file has no figures of a benchmark in it.
    """
    figures = _load(path)
    about = [_BEHIND, f"# {path.stem}", f"All figures: [{path.name}]({path.name})."]
    if plots is not None:
        figures = _without_series(figures)
        about.append(f"The same as plots, and as tables that can be printed: [{plots}]({plots}).")
    command = f"```sh\n{figures['command']}\n```"
    settings = {name: value for name, value in _contents(figures) if not _is_nested(value)}
    settings |= {name: value for name, value in figures.get("settings", {}).items() if not _is_nested(value)}
    parts = [*about, command, f"Measured on {_machine(figures['machine'])}."]
    if settings:
        parts.append(_table([{"setting": _words(name), "value": _shown(value)} for name, value in settings.items()]))
    nested = {name: value for name, value in _contents(figures) if _is_nested(value) and name != "settings"}
    return "\n\n".join([*parts, *_sections(nested, 2)]) + "\n"


def overview_page(paths: Iterable[Path]) -> str:
    """Return the page that lists all files of figures."""
    rows = []
    for path in paths:
        figures = _load(path)
        what = [figures[name] for name in ("benchmark", "workload") if isinstance(figures.get(name), str)]
        asked = {**figures, **figures.get("settings", {})}
        numbers = {name: asked[name] for name in ("rows", "keys") if _is_number(asked.get(name))}
        run = {"run": f"[{path.stem}](../{path.stem}.md)", "what": ", ".join(what)}
        rows.append(run | numbers | {"processor": figures["machine"]["cpu"]})
    about = "Each file of figures, as tables. [Figures](../README.md) says what they mean."
    return f"# All runs\n\n{about}\n\n{_table(rows)}\n"


def _load(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text())
    figures: dict[str, Any] = found if isinstance(found, dict) else {}
    lacking = [part for part in ("benchmark", "command", "machine") if part not in figures]
    if lacking:
        raise ValueError(f"{path} is no file of figures: it does not say its {' and '.join(lacking)}")
    return figures


def _contents(figures: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the entries that differ from benchmark to benchmark."""
    return ((name, value) for name, value in figures.items() if name not in _ABOUT)


def _machine(machine: Mapping[str, Any]) -> str:
    packages = [f"{name} {version}" for name, version in machine["packages"].items()]
    parts = [machine["cpu"], f"{machine['cores']} cores", f"{machine['memory_gib']} GiB", machine["system"]]
    return ", ".join([*parts, f"Python {machine['python']}", *packages])


def _sections(figures: Mapping[str, Any], level: int) -> Iterator[str]:
    """Yield each part under a heading; parts that are about the same names make one table."""
    by_name = {name: value for name, value in figures.items() if _is_by_name(value)}
    shared = _shared(by_name)
    if shared:
        yield _heading("figures", level)
        yield _by_name({name: by_name[name] for name in shared})
    for name, value in figures.items():
        if name not in shared:
            yield _heading(_words(name), level)
            yield from _part(value, level)


def _part(value: Any, level: int) -> Iterator[str]:
    if _is_rows(value):
        yield from _tables(value)
    elif _is_by_name(value) or _is_series(value):
        yield _table(
            {"name": name, **(part if isinstance(part, Mapping) else {"value": part})} for name, part in value.items()
        )
    elif isinstance(value, Mapping):
        yield from _sections(value, min(level + 1, 6))
    else:
        yield _shown(value)


def _tables(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one table, or one for each row if these have rows of their own."""
    inner = next((name for name, value in rows[0].items() if _is_rows(value)), None)
    if inner is None:
        yield _table(rows)
        return
    for row in rows:
        yield f"**{', '.join(_shown(value) for name, value in row.items() if name != inner)}**"
        yield _table(row[inner])


def _by_name(parts: Mapping[str, Mapping[str, Any]]) -> str:
    names = dict.fromkeys(name for part in parts.values() for name in part)
    return _table(
        [{"name": name} | {part: values[name] for part, values in parts.items() if name in values} for name in names]
    )


def _shared(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the parts whose names are all among those of the part that has most of them."""
    most = max(parts.values(), key=len, default={})
    shared = [name for name, part in parts.items() if part and part.keys() <= most.keys()]
    return shared if len(shared) > 1 else []


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a row for each; series that are long stand below, under the name of their row."""
    flat = [dict(_flattened(row)) for row in rows]
    named = list(dict.fromkeys(name for row in flat for name, value in row.items() if value is not None))
    long = [name for name in named if any(_is_long(row.get(name)) for row in flat)]
    columns = [name for name in named if name not in long]
    numeric = {name for name in columns if any(_is_number(row.get(name)) for row in flat)}
    lines = [
        "| " + " | ".join(_words(name) for name in columns) + " |",
        "|" + "|".join("--:" if name in numeric else "---" for name in columns) + "|",
        *("| " + " | ".join(_shown(row.get(name)) for name in columns) + " |" for row in flat),
    ]
    series = [
        f"**{_shown(row[columns[0]])}, {_words(name)}**\n\n{_shown(row[name])}"
        for row in flat
        for name in long
        if row.get(name)
    ]
    return "\n\n".join(["\n".join(lines), *series])


def _flattened(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", value


def _heading(text: str, level: int) -> str:
    return f"{'#' * level} {text[:1].upper()}{text[1:]}"


def _words(name: str) -> str:
    """Return a name as words, with its unit at the end. Latencies of kinds of operations are microseconds.

    >>> _words("store p50_us"), _words("rows_per_second"), _words("resident_bytes")
    ('store p50, µs', 'rows per second', 'resident bytes')
    >>> _words("latency_us p99_9"), _words("by_operation put_many max")
    ('latency p99.9, µs', 'latency of put many max, µs')
    """
    text = name.replace("_", " ").replace("p99 9", "p99.9")
    if text.startswith(_KINDS):
        return f"latency of {text.removeprefix(_KINDS)}, {_UNITS['us']}"
    before, unit, after = text.partition(" us ")
    if unit:
        return f"{before} {after}, {_UNITS['us']}"
    *words, last = text.split(" ")
    if words and words[-1] != "per" and last in _UNITS:
        return f"{' '.join(words)}, {_UNITS[last]}"
    return " ".join([*words, last])


def _shown(value: Any) -> str:
    """Return a value as text, numbers with four digits at least.

    >>> _shown(1.7023), _shown(883882.27), _shown(0.0000051), _shown([1.5, 2]), _shown(None)
    ('1.702', '883,882', '0.0000051', '1.5, 2', '')
    """
    if value is None:
        return ""
    if isinstance(value, list):
        return ("; " if any(isinstance(item, list) for item in value) else ", ").join(map(_shown, value))
    if not _is_number(value):
        return str(value).replace("|", "\\|")
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return format(Decimal(f"{value:.4g}"), "f")


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_nested(value: object) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and not all(map(_is_number, value)))


def _is_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _without_series(value: Any) -> Any:
    """Return the figures without lists of points."""
    if isinstance(value, Mapping):
        return {name: _without_series(part) for name, part in value.items() if not _is_points(part)}
    return [_without_series(part) for part in value] if isinstance(value, list) else value


def _is_long(value: object) -> bool:
    """Return whether it is a series that no cell of a table has room for."""
    return isinstance(value, list) and len(value) > _LONGEST


def _is_points(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(part, list) for part in value)


def _is_series(value: object) -> bool:
    """Return whether it has figures in a row for each of several names."""
    return isinstance(value, Mapping) and all(isinstance(part, list) and not _is_rows(part) for part in value.values())


def _is_by_name(value: object) -> bool:
    """Return whether it has a figure or a flat row for each of several names."""
    return isinstance(value, Mapping) and not any(
        isinstance(part, list) or (isinstance(part, Mapping) and any(map(_is_nested, part.values())))
        for part in value.values()
    )
