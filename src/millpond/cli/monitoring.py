"""``millpond top`` and ``millpond ui``, which watch a query from another process, without Spark.

Rule of this module: options and messages live here; screens and pages live in ``millpond.adapters.monitor``. Ctrl-C
ends both with exit code 130, as the command line does everywhere.
"""

import webbrowser
from typing import Annotated

import typer

from millpond.cli.state import STATE, CheckpointPlace, TopologyName, Workers, topology_named
from millpond.cli.terminal import durations, ending
from millpond.cli.terminal.answers import AsJson, say_object
from millpond.cli.terminal.teaching import lesson

app = typer.Typer()

StatePlace = Annotated[
    str | None, typer.Option("--state-dir", metavar="PLACE", help="the job's state_dir, for its stores")
]
Progress = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="the directory of watch(spark, keep=DIR), for rates, lag and batch times"),
]
Interval = Annotated[str, typer.Option(metavar=durations.DURATION, help="how long to wait before looking again")]


@app.command(
    "top",
    rich_help_panel=STATE,
    epilog=lesson(
        "millpond top CHECKPOINT --state-dir STATE",
        "millpond top CHECKPOINT --state-dir STATE --progress PROGRESS --interval '5 seconds'",
        "millpond top CHECKPOINT --json",
        read="docs/watching.md",
    ),
)
def top(
    checkpoint: CheckpointPlace,
    state_dir: StatePlace = None,
    progress: Progress = None,
    interval: Interval = "2 seconds",
    once: Annotated[bool, typer.Option("--once", help="print the tables once, as where there is no terminal")] = False,
    json: AsJson = False,
    workers: Workers = 4,
) -> None:
    """Watch a query in the terminal: micro-batches, lag, rates, what waits, state. Ctrl-C ends it, not the query."""
    from rich.console import Console

    from millpond.adapters.monitor.query_monitor import QueryMonitor
    from millpond.adapters.monitor.screen import can_show, show
    from millpond.adapters.monitor.table import tables

    pause = durations.seconds("--interval", interval)
    watched = QueryMonitor(checkpoint, state_dir, progress, workers=workers)
    console = Console()
    if json:
        say_object(watched.look().to_dict())
    elif once or not can_show(console):
        console.print(tables(watched.look()))
    else:
        with ending.in_order():
            show(watched, console, pause)


@app.command(
    "ui",
    rich_help_panel=STATE,
    epilog=lesson(
        "millpond ui CHECKPOINT --state-dir STATE --open",
        "millpond ui CHECKPOINT --state-dir STATE --progress PROGRESS --topology jobs:flights --port 0",
        read="docs/watching.md",
    ),
)
def ui(
    checkpoint: CheckpointPlace,
    state_dir: StatePlace = None,
    progress: Progress = None,
    topology: TopologyName = None,
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="0 for a free one")] = 4050,
    interval: Interval = "2 seconds",
    open_: Annotated[bool, typer.Option("--open", help="open the page in the browser")] = False,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Serve a page about a query, to this machine alone. Ctrl-C ends it, not the query."""
    from millpond.adapters.monitor.query_monitor import QueryMonitor
    from millpond.adapters.monitor.server import HOST, server

    pause = durations.seconds("--interval", interval)
    watched = QueryMonitor(checkpoint, state_dir, progress, topology_named(topology), workers=workers)
    watched.look()
    with server(watched, port, pause) as serving:
        address = f"http://{HOST}:{serving.server_port}/"
        if json:
            say_object({"address": address})
        else:
            typer.echo(f"{address} (Ctrl-C ends it)")
        if open_:
            webbrowser.open(address)
        serving.serve_forever()
