"""``millpond bench history``: commands for the same benchmark measured again and again."""

from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.bench.options import HtmlFile, console
from millpond.cli.teaching import lesson

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
        typer.Argument(
            metavar="RESULTS.json",
            help="what --json of bench engines, stores, processors, spark or nexmark has written",
        ),
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
    from millpond.bench import compare
    from millpond.bench import history as kept

    found: dict[Path, kept.History] = {}
    added: list[tuple[Path, kept.Entry | None]] = []
    for path in results:
        file = kept.history_file(path, into or path.parent / "history")
        if file not in found:
            found[file] = kept.read_history(file) if file.exists() else kept.History(file.stem, ())
        found[file], entry = kept.with_file(found[file], path, date)
        added.append((file, entry))
    for file in dict.fromkeys(file for file, entry in added if entry is not None):
        kept.write_history(found[file], file)
    shown = console(None, 130)
    for file, new in added:
        if new is None:
            typer.echo(f"{file} has it already")
            continue
        before = found[file].before(new)
        typer.echo(f"{file}: measured on {new.date}" + ("" if before is None else f", before on {before.date}"))
        if before is not None:
            compare.print_comparison(shown, compare.compared(before.document, new.document))


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
    from millpond.bench import history as kept

    found = [kept.read_history(path) for path in histories]
    shown = console(None, 130)
    for one in found:
        kept.print_moved(shown, one)
    if html is not None:
        from millpond.bench.pages.frame import write_html
        from millpond.bench.pages.history import history_page

        write_html(history_page(found), html)
