"""``millpond bench page`` and ``millpond bench compare``: what is done with results that were measured before."""

from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.bench_options import JsonFile, console

app = typer.Typer()

_RULE = (
    "A change counts if no run of one file lies among those of the other, and if the ratio of the medians is larger "
    "than the spread, the ratio of the fastest run to the slowest, of both files. With fewer than 3 runs nothing can "
    "be said."
)


@app.command("page")
def bench_page(
    results: Annotated[Path, typer.Argument(metavar="RESULTS.json", help="what bench engines --json has written")],
    page: Annotated[Path, typer.Argument(metavar="PAGE.html", help="where the page goes")],
) -> None:
    """Results of bench engines as one HTML page of plots and tables, which needs no network."""
    from millpond.bench.engine_results import read_document
    from millpond.bench.pages.page import write_page

    write_page(read_document(results), page, origin=str(results))
    typer.echo(f"wrote {page}")


@app.command("compare", epilog=_RULE)
def bench_compare(
    old: Annotated[Path, typer.Argument(metavar="OLD.json", help="what bench engines --json has written")],
    new: Annotated[Path, typer.Argument(metavar="NEW.json", help="the same, measured later")],
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
    """What changed between two results of bench engines beyond the noise."""
    from millpond.bench import compare
    from millpond.bench.engine_results import read_results
    from millpond.bench.report import write_text

    comparison = compare.compared(read_results(old), read_results(new))
    compare.print_comparison(console(json, 110), comparison, everything=everything)
    if json is not None:
        write_text(json, comparison.text())
    if fail_on_slower is not None and comparison.slower(fail_on_slower):
        raise typer.Exit(1)
