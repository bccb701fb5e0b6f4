"""``millpond doctor``: the known faults of a query.

Rule of this module: options and messages live here; faults and their signs live in
``millpond.adapters.monitor.diagnosis``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.monitoring import Progress, StatePlace
from millpond.cli.state import STATE, CheckpointPlace, Workers
from millpond.cli.terminal.answers import AsJson, say
from millpond.cli.terminal.teaching import lesson

if TYPE_CHECKING:
    from millpond.adapters.monitor.overview import Overview

app = typer.Typer()


@app.command(
    "doctor",
    rich_help_panel=STATE,
    epilog=lesson(
        "millpond doctor CHECKPOINT --progress PROGRESS",
        "millpond doctor CHECKPOINT --progress PROGRESS --state-dir STATE --json",
        "millpond doctor CHECKPOINT --progress PROGRESS --standby /mnt/millpond",
        codes="1 if something is wrong",
        read="docs/doctor.md",
    ),
)
def doctor(
    checkpoint: CheckpointPlace,
    state_dir: StatePlace = None,
    progress: Progress = None,
    standby: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="the local_dir that millpond state warm --standby keeps on this machine"),
    ] = None,
    json: AsJson = False,
    workers: Workers = 4,
) -> None:
    """Say what is wrong with a query: by which figures, since when, and what to do. Starts no Spark, changes nothing.

    Fourteen states are known, from a query that died to a key that most records have.
    """
    from millpond.adapters.monitor.query_monitor import QueryMonitor

    answer = _Diagnosis(QueryMonitor(checkpoint, state_dir, progress, workers=workers, standby=standby).look())
    say(answer, json)
    if answer.seen.findings:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Diagnosis:
    seen: "Overview"

    def lines(self) -> Iterator[str]:
        from millpond.adapters.monitor.diagnosis.units import duration

        for found in self.seen.findings:
            since = "" if found.since is None else f", since {duration(self.seen.at - found.since)}"
            yield f"{found.state}{since}"
            yield f"  {found.figures}"
            yield f"  {found.advice} ({found.page})"
        if not self.seen.findings:
            yield "nothing is known to be wrong with it"
        yield from (f"note: {note}" for note in self.seen.notes)

    def to_dict(self) -> dict[str, Any]:
        seen = self.seen
        return {
            "checkpoint": seen.checkpoint,
            "query": seen.query,
            "name": seen.name,
            "at": seen.at,
            "findings": [found.to_dict() for found in seen.findings],
            "notes": list(seen.notes),
        }
