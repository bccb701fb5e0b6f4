"""The figures of Nexmark as tables: those that the suite gives, cores and time, beside those of Spark."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from millpond.bench.runs.tables import contenders_table, failures_table


def print_results(console: Console, figures: Mapping[str, Any]) -> None:
    """Print the contenders, the results of each query, their comparison, and the failures."""
    console.print(contenders_table(figures["contenders"], "what a micro-batch has kept"))
    console.print(_figures_table(figures))
    if any(query["ratios"] for query in figures["queries"].values()):
        console.print(_ratios_table(figures))
    if figures["failures"]:
        console.print(failures_table(figures["failures"]))


def _figures_table(figures: Mapping[str, Any]) -> Table:
    """Return a row per query and contender. Cores x time is the processor time of all processes, for a whole run."""
    settings = figures["settings"]
    events = settings["rows"] * settings["batches"]
    source = " of topics of Kafka" if settings.get("source") == "kafka" else ""
    table = Table(title=f"nexmark: {events:,} events in {settings['batches']:,} micro-batches{source}")
    table.add_column("query", no_wrap=True)
    table.add_column("contender", no_wrap=True)
    for column in ("events/s", "least to most", "time s", "cores", "cores x time s", "state MiB", "rows checked"):
        table.add_column(column, justify="right")
    of_flink = [query["flink"] for query in figures["queries"].values() if "flink" in query]
    table.caption = _caption(of_flink[0]) if of_flink else None
    for workload, row in _results(figures):
        query, rate = figures["queries"][workload], row["throughput"]
        seconds = _seconds(figures, row)
        spent = _cores_times_seconds(figures, row)
        disk = "" if row["disk_bytes"] is None else f"{row['disk_bytes'] >> 20:,}"
        table.add_row(
            workload,
            row["contender"],
            f"{rate['median']:,.0f}",
            f"{rate['min']:,.0f} to {rate['max']:,.0f}",
            f"{seconds:.1f}",
            "" if spent is None else f"{spent / seconds:.2f}",
            "" if spent is None else f"{spent:.1f}",
            disk,
            f"{query['checked_rows'][row['contender']]:,}",
        )
    return table


def _caption(flink: Mapping[str, Any]) -> str:
    """Return how Flink has run."""
    versions = ", ".join(f"{name.capitalize()} {number}" for name, number in flink["versions"].items())
    return (
        f"{versions}: one job for the events of all micro-batches, with a checkpoint every "
        f"{flink['checkpoint_seconds']} s; its start is not in the figures, and its events come from memory."
    )


def _ratios_table(figures: Mapping[str, Any]) -> Table:
    """Return a row per query and peer: how many times as much time, and as many cores x time, the peer takes."""
    table = Table(title="what a peer takes, in times of what verbs take")
    table.add_column("query", no_wrap=True)
    table.add_column("peer", no_wrap=True)
    for column in ("time", "cores x time"):
        table.add_column(column, justify="right")
    by_name = {(workload, row["contender"]): row for workload, row in _results(figures)}
    for workload, query in figures["queries"].items():
        for peer, ratio in query["ratios"].items():
            own, other = (_cores_times_seconds(figures, by_name[workload, name]) for name in (query["ratios_of"], peer))
            cores = "" if own is None or other is None else f"{other / own:.2f}"
            table.add_row(workload, peer, f"{ratio:.2f}", cores)
    return table


def _results(figures: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each result with its query, those of a query together."""
    for workload in figures["queries"]:
        for row in figures["results"]:
            if row["workload"] == workload:
                yield workload, row


def _seconds(figures: Mapping[str, Any], row: Mapping[str, Any]) -> float:
    """Return the seconds that a run takes, by the median of its micro-batches."""
    seconds: float = figures["queries"][row["workload"]]["seconds_per_batch"][row["contender"]]
    return seconds * float(figures["settings"]["batches"])


def _cores_times_seconds(figures: Mapping[str, Any], row: Mapping[str, Any]) -> float | None:
    """Return the processor seconds of a run, all cores together, as the mean of all runs; None if not known."""
    settings = figures["settings"]
    if row["cpu_s"] is None:
        return None
    return float(row["cpu_s"] * settings["rows"] * settings["batches"] / row["operations"])
