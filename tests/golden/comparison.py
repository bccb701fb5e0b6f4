"""The comparison of a run of a golden case with what was recorded.

Rule of this module: it knows the format's rules for comparing, and nothing of how the run was made. Every difference
is returned as a sentence; no difference, no sentence.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tests.golden.loader import Case

_UNSEEN = object()

Output = dict[str, Any]
"""A record that came out: topic, key, value, ts, headers where there are any, and after, the index of the input record
that made it."""


def compare_output(case: Case, actual: list[Output], *, headers: bool = True) -> list[str]:
    """Return the differences in the output, by the case's way of comparing; without ``headers``, records have none."""
    expected = case.expected_output
    if not headers:
        expected = [{name: entry for name, entry in row.items() if name != "headers"} for row in expected]
    if case.compare == "unordered":
        return _compare_multisets(_records(expected), _records(actual))
    if case.compare == "last_per_key":
        closed = [row for row in expected if not _still_open(case, row)]
        return _compare_last(closed, actual, bool(case.content.get("whole_run")))
    return compare_exact(expected, actual)


def _still_open(case: Case, row: Output) -> bool:
    """Return whether a result was recorded while its sliding window took records: too early to be final (NOTES 5.7)."""
    sliding = [o["window"] for o in case.content["topology"] if o.get("window", {}).get("kind") == "sliding"]
    if not sliding or not isinstance(row["key"], dict):
        return False
    stream_time = max(record["ts"] for record in case.content["input"] if "ts" in record)
    return bool(row["key"]["end"] >= stream_time - sliding[0]["grace_ms"])


def _frozen(value: Any) -> Any:
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


def _record(row: Output) -> tuple[Any, ...]:
    return (row["topic"], _frozen(row["key"]), row["value"], row["ts"], _frozen(row.get("headers") or {}))


def _records(rows: Iterable[Output]) -> Counter[Any]:
    return Counter(map(_record, rows))


def _compare_multisets(expected: Counter[Any], actual: Counter[Any]) -> list[str]:
    missing = [f"missing {record}" for record in (expected - actual).elements()]
    return missing + [f"not expected {record}" for record in (actual - expected).elements()]


def _by_step(rows: Iterable[Output]) -> dict[Any, list[Any]]:
    steps: dict[Any, list[Any]] = {}
    for row in rows:
        steps.setdefault((row["after"], row["topic"]), []).append(_record(row)[1:])
    return steps


def compare_exact(expected: list[Output], actual: list[Output]) -> list[str]:
    """Return the steps and topics whose records are not the same, or not in the same order."""
    wanted, got = _by_step(expected), _by_step(actual)
    return [
        f"after record {step[0]} on {step[1]}: expected {wanted.get(step, [])}, got {got.get(step, [])}"
        for step in sorted({*wanted, *got})
        if wanted.get(step, []) != got.get(step, [])
    ]


def _compare_last(expected: list[Output], actual: list[Output], whole_run: bool) -> list[str]:
    def last(rows: list[Output]) -> dict[Any, tuple[Any, int]]:
        return {
            (0 if whole_run else row["after"], row["topic"], _frozen(row["key"])): (row["value"], row["ts"])
            for row in rows
        }

    wanted, got = last(expected), last(actual)
    state: dict[Any, Any] = {}
    differences = []
    for place in sorted({*wanted, *got}, key=lambda p: (p[0], str(p[1:]))):
        want, have = wanted.get(place), got.get(place)
        repeated = want is not None and state.get(place[1:], _UNSEEN) == want[0]
        if want is not None:
            state[place[1:]] = want[0]
        if have is None and repeated:
            continue
        if have is None or want is None or have[0] != want[0] or have[1] < want[1]:
            differences.append(f"last at {place}: expected {want}, got {have}")
    return differences


def compare_stores(case: Case, actual: Mapping[str, list[Any]]) -> list[str]:
    """Return the differences in the named stores. A result's timestamp may be later where the output's may."""
    later = case.compare == "last_per_key"
    differences = []
    for name, wanted in case.expected_stores.items():
        got = _remembered(case, name, actual[name])
        expected, held = (in_one_order(entries, without_times=later) for entries in (wanted, got))
        if expected != held:
            differences.append(f"store {name}: expected {expected}, got {held}")
    return differences


def _remembered(case: Case, name: str, entries: list[Any]) -> list[Any]:
    """Return the entries that the recorded retention covers: sessions with final results stay longer with Millpond."""
    operators = {operator.get("id"): operator for operator in case.content["topology"]}
    owner = next(o for o in operators.values() if o.get("materialized", {}).get("name") == name)
    windowed = operators.get(owner.get("input"), {})
    window = windowed.get("window", {})
    if windowed.get("emit") != "window_close" or window.get("kind") != "session" or not entries:
        return entries
    retention = owner["materialized"].get("retention_ms", window["gap_ms"] + window["grace_ms"])
    newest = max(entry["end"] for entry in entries)
    return [entry for entry in entries if entry["end"] >= newest - retention]


def in_one_order(entries: list[Any], *, without_times: bool = False) -> list[Any]:
    """Return entries in one order, without what a store need not reproduce: expired versions, deleted keys."""
    ignored = {"expired_still_present"} | ({"ts"} if without_times else set())
    alive = [entry for entry in entries if entry.get("versions", True)]
    kept = [{name: value for name, value in entry.items() if name not in ignored} for entry in alive]
    return sorted(kept, key=lambda e: (e["key"].encode(), e.get("start", 0), e.get("end", 0)))


def compare_versioned(case: Case, actual: Mapping[str, bool]) -> list[str]:
    """Return the tables that are versioned where they should not be, or the other way round."""
    return [
        f"table {name}: versioned should be {wanted}, is {actual.get(name)}"
        for name, wanted in case.content.get("versioned_tables", {}).items()
        if actual.get(name) is not wanted
    ]
