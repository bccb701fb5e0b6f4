"""``millpond bench page`` and ``millpond bench compare``: commands for results that were measured before."""

from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.bench.options import WRITTEN, JsonFile, console
from millpond.cli.terminal.teaching import lesson

app = typer.Typer()


@app.command("page", epilog=lesson("millpond bench page engines.json engines.html", read="docs/benchmarks.md"))
def bench_page(
    results: Annotated[Path, typer.Argument(metavar="RESULTS.json", help=WRITTEN)],
    page: Annotated[Path, typer.Argument(metavar="PAGE.html", help="where the page goes")],
) -> None:
    """Show the results of a benchmark as one HTML page of plots and tables, which needs no network."""
    from millpond.bench.documents import read_json
    from millpond.bench.pages.page import write_page

    write_page(read_json(results), page, origin=str(results))
    typer.echo(f"wrote {page}")


@app.command(
    "compare",
    epilog=lesson(
        "millpond bench compare before.json after.json",
        "millpond bench compare before.json after.json --fail-on-slower 10 --json -",
        read="docs/benchmarks.md",
    ),
)
def bench_compare(
    old: Annotated[Path, typer.Argument(metavar="OLD.json", help=WRITTEN)],
    new: Annotated[Path, typer.Argument(metavar="NEW.json", help="the same benchmark, measured later")],
    everything: Annotated[bool, typer.Option("--all", help="also show what is within the noise")] = False,
    fail_on_slower: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            metavar="PERCENT",
            help="end with exit code 1 if anything lost more than this beyond the noise, or failed in NEW",
        ),
    ] = None,
    json: JsonFile = None,
) -> None:
    """Compare two results of the same benchmark, and show the changes beyond the noise.

    A change counts if no run of one file lies among those of the other, and if the ratio of the medians is larger
    than the spread, the ratio of the fastest run to the slowest, of both files. With fewer than 3 runs nothing can
    be said.
    """
    from millpond.bench import compare
    from millpond.bench.documents import read_document
    from millpond.bench.report import write_text

    comparison = compare.compared(read_document(old), read_document(new))
    compare.print_comparison(console(json, 110), comparison, everything=everything)
    if json is not None:
        write_text(json, comparison.text())
    if fail_on_slower is not None and comparison.slower(fail_on_slower):
        raise typer.Exit(1)
