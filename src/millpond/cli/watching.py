"""``millpond top`` and ``millpond ui``: watch a query from another process, without Spark.

Rule of this module: options and messages live here, and when to look again; what there is to see lives in
``millpond.adapters.watching``.
"""

import webbrowser
from json import dumps
from time import sleep
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.state import CheckpointPlace, TopologyName, Workers, topology_named
from millpond.errors import ConfigurationError, MillpondError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from millpond.adapters.watching.watched import Watched

app = typer.Typer()

StatePlace = Annotated[str | None, typer.Option("--state-dir", help="the job's state_dir, for its stores")]
Progress = Annotated[
    str | None, typer.Option(help="the DIRECTORY of watch(spark, keep=DIRECTORY), for rates, lag and batch times")
]
Interval = Annotated[str, typer.Option(help="how long to wait before looking again")]


@app.command("top")
def top(
    checkpoint: CheckpointPlace,
    state_dir: StatePlace = None,
    progress: Progress = None,
    interval: Interval = "2 seconds",
    once: Annotated[bool, typer.Option("--once", help="print the tables once, as where there is no terminal")] = False,
    json: Annotated[bool, typer.Option("--json", help="print one JSON document with all there is to see")] = False,
    workers: Workers = 4,
) -> None:
    """Watch a query in the terminal: micro-batches, lag, rates, what waits, state. Ctrl-C ends it, not the query."""
    from rich.console import Console
    from rich.live import Live

    from millpond.adapters.watching.table import tables
    from millpond.adapters.watching.watched import Watched

    pause = _seconds(interval)
    watched = Watched(checkpoint, state_dir, progress, workers=workers)
    first = watched.look()
    if json:
        typer.echo(dumps(first.to_dict()))
        return
    console = Console()
    if once or not console.is_terminal:
        console.print(tables(first))
        return
    try:
        with Live(tables(first), console=console, screen=True, auto_refresh=False) as live:
            while True:
                sleep(pause)
                live.update(_shown(watched), refresh=True)
    except KeyboardInterrupt:
        return


@app.command("ui")
def ui(
    checkpoint: CheckpointPlace,
    state_dir: StatePlace = None,
    progress: Progress = None,
    topology: TopologyName = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for a free one")] = 4050,
    interval: Interval = "2 seconds",
    open_: Annotated[bool, typer.Option("--open", help="open the page in the browser")] = False,
    workers: Workers = 4,
) -> None:
    """Serve a page about a query, to this machine alone. Ctrl-C ends it, not the query."""
    from millpond.adapters.watching.server import HOST, server
    from millpond.adapters.watching.watched import Watched

    pause = _seconds(interval)
    watched = Watched(checkpoint, state_dir, progress, topology_named(topology), workers=workers)
    watched.look()
    with server(watched, port, pause) as serving:
        address = f"http://{HOST}:{serving.server_port}/"
        typer.echo(f"{address} (Ctrl-C ends it)")
        if open_:
            webbrowser.open(address)
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            return


def _shown(watched: "Watched") -> "RenderableType":
    """What there is to see now, or what is wrong."""
    from millpond.adapters.watching.table import problem, tables

    try:
        return tables(watched.look())
    except MillpondError as error:
        return problem(str(error))


def _seconds(interval: str) -> float:
    from millpond.stores.times import to_length

    seconds = to_length(interval, "interval") / 1000
    if seconds <= 0:
        raise ConfigurationError(f"the interval is {interval!r}; give more than nothing, as in '2 seconds'")
    return seconds
