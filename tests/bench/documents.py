"""Documents of the form that the family of benchmarks writes, as small as they may be."""

from collections.abc import Sequence
from typing import Any

MACHINE = {
    "cpu": "Abacus",
    "cores": 2,
    "memory_gib": 23.5,
    "system": "Linux 6",
    "python": "3.11.7",
    "packages": {"millpond": "0.1.0", "lmdb": "3.0.0"},
}
SETTINGS = {
    "records": 1000,
    "operations": 500,
    "key_bytes": 16,
    "value_bytes": 100,
    "batch": 1,
    "data_bytes": 116_000,
    "cache_bytes": None,
    "cache_ratio": None,
    "seed": 1,
    "repeat": 3,
    "warm_up": 50,
    "clock_ns": 55,
}


def contender(label: str, kind: str = "backend", **more: str) -> dict[str, str]:
    about = {"version": "1.0", "durability": "none", "distribution": "millpond"}
    return {"name": label.split()[0], "kind": kind, "label": label, **about, **more}


def result(label: str, workload: str, runs: Sequence[float] = (90.0, 100.0, 110.0), **more: Any) -> dict[str, Any]:
    ordered = sorted(runs)
    latency = {"p50": 1.5, "p90": 2.5, "p99": 40.0, "p99_9": 55.25, "max": 7000.0}
    return {
        "contender": label,
        "workload": workload,
        "operations": 500,
        "throughput": {"median": ordered[len(runs) // 2], "min": ordered[0], "max": ordered[-1], "runs": list(runs)},
        "latency_us": latency,
        "by_operation": None,
        "over_time": [[0.5, 120.0], [1.0, 0.0], [1.5, 80.0]],
        "cpu_s": 0.25,
        "peak_rss_bytes": 50 * 2**20,
        "disk_bytes": 0,
        "write_amplification": None,
        **more,
    }


def bare_result(label: str, workload: str, runs: Sequence[float] = (90.0, 100.0, 110.0)) -> dict[str, Any]:
    """Return a result that has only what each must have."""
    whole = result(label, workload, runs)
    return {name: whole[name] for name in ("contender", "workload", "operations", "throughput")}


def document(
    contenders: Sequence[dict[str, str]],
    results: Sequence[dict[str, Any]],
    failures: Sequence[dict[str, str]] = (),
    **settings: Any,
) -> dict[str, Any]:
    return {
        "benchmark": "engines",
        "schema": 2,
        "command": "millpond bench engines --json out.json",
        "machine": MACHINE,
        "settings": {**SETTINGS, **settings},
        "contenders": list(contenders),
        "results": list(results),
        "failures": list(failures),
    }


def queries(document: dict[str, Any], ratios: dict[str, dict[str, float]], own: str = "verbs") -> dict[str, Any]:
    """Return the document as one that ran on Spark, with the ratios of each workload by peer."""
    measured = {name: {"ratios": beside, "ratios_of": own, "batch_seconds": {}} for name, beside in ratios.items()}
    return {**document, "benchmark": "nexmark", "unit": "rows", "backend": "lmdb", "queries": measured}
