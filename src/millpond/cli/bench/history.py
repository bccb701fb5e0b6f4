"""``millpond bench history``: commands for the same benchmark measured again and again."""

from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.bench.options import WRITTEN, HtmlFile, console
from millpond.cli.terminal.teaching import lesson

app = typer.Typer(no_args_is_help=True)


@app.callback()
def history() -> None:
    """Keep how the figures of a benchmark move from measurement to measurement."""


@app.command(
    "add",
    epilog=lesson(
        "millpond bench history add engines.json",
        "millpond bench history add results/spark-count.json results/nexmark.json --into results/history",
        read="docs/benchmarks.md",
    ),
)
def bench_history_add(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULTS.json", help=WRITTEN),
    ],
    into: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="where histories are; by default history beside each file")
    ] = None,
    date: Annotated[
        str | None, typer.Option(metavar="YYYY-MM-DD", help="when files were measured that do not say it themselves")
    ] = None,
) -> None:
    """Add measurements to their histories, and show what changed since the one before.

    The history of engines.json is engines.jsonl in the folder, a line for each measurement. A measurement that is
    there already changes nothing. If a file is refused, none is added. Changes never make the command fail.
    """
    from millpond.bench.compare import compared, print_comparison
    from millpond.bench.history import add

    shown = console(None, 110)
    for one in add(results, into, date):
        if one.entry is None:
            typer.echo(f"{one.path} has it already")
            continue
        before = "" if one.before is None else f", before on {one.before.date}"
        typer.echo(f"{one.path}: measured on {one.entry.date}{before}")
        if one.before is not None:
            print_comparison(shown, compared(one.before.document, one.entry.document))


@app.command(
    "show",
    epilog=lesson(
        "millpond bench history show history/engines.jsonl",
        "millpond bench history show history/*.jsonl --html history.html",
        read="docs/benchmarks.md",
    ),
)
def bench_history_show(
    histories: Annotated[
        list[Path], typer.Argument(metavar="HISTORY.jsonl", help="what bench history add has written")
    ],
    html: HtmlFile = None,
) -> None:
    """Show each change of a figure beyond the noise, by the rule of bench compare, the newest first.

    With a slash, a figure is how many times as fast a contender is as a peer in the same run. Changes never make the
    command fail.
    """
    from millpond.bench.history import print_moved, read_history

    found = [read_history(path) for path in histories]
    shown = console(None, 130)
    for one in found:
        print_moved(shown, one)
    if html is not None:
        from millpond.bench.pages.frame import write_html
        from millpond.bench.pages.history import history_page

        write_html(history_page(found), html)
