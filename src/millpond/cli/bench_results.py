"""``millpond bench page`` and ``millpond bench compare``: what is done with results that were measured before."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()

_STANDARD_OUTPUT = Path("-")
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
    json: Annotated[
        Path | None,
        typer.Option(
            "--json", help="also write the comparison to this file; - for the standard output, and nothing else"
        ),
    ] = None,
) -> None:
    """What changed between two results of bench engines beyond the noise."""
    from rich.console import Console

    from millpond.bench import compare
    from millpond.bench.engine_results import read_results

    comparison = compare.compared(read_results(old), read_results(new))
    alone = json == _STANDARD_OUTPUT
    console = Console(width=max(Console().width, 110), quiet=alone)
    compare.print_comparison(console, comparison, everything=everything)
    if json is not None and not alone:
        json.parent.mkdir(parents=True, exist_ok=True)
        json.write_text(comparison.text(), encoding="utf-8")
    elif alone:
        typer.echo(comparison.text(), nl=False)
    if fail_on_slower is not None and comparison.slower(fail_on_slower):
        raise typer.Exit(1)
