"""The report of the demo: a progress bar while it runs, then a table, the answer and the lesson."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from millpond.demo import data, job, truth
from millpond.masking import masked


@dataclass(frozen=True)
class Summary:
    """The summary of a run of the demo.

    Attributes:
        options: the options.
        result: the result of the run.
        agreements: the agreement of each query's rows with the truth.
    """

    options: job.Options
    result: job.Result
    agreements: Mapping[str, truth.Agreement]

    @property
    def right(self) -> bool:
        """True if every row is right."""
        return all(agreement.complete for agreement in self.agreements.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as an object of JSON."""
        return {
            "backend": masked(self.options.backend),
            "out": str(self.options.out),
            "right": self.right,
            "arrived": self.result.arrived,
            "flights": self.result.cut.flights,
            "queries": [
                {"query": name, **asdict(pace), **asdict(self.agreements[name])}
                for name, pace in self.result.paces.items()
            ],
        }


def run(options: job.Options, console: Console | None = None) -> Summary:
    """Run the demo and show the results."""
    console = console or Console()
    with console.status("Preparing the input and starting Spark ...") if console.is_terminal else nullcontext():
        inputs = job.prepare(options)
    result = _run_with_bars(options, inputs, console)
    console.print(_paces(options, result))
    if not any(pace.batches for pace in result.paces.values()):
        console.print(f"Nothing was left to do. To start afresh, delete {options.out}, or choose another --out.")
    agreements = _show_answer(result, console)
    if result.arrived == result.cut.flights:
        _show_lesson(console)
    else:
        console.print(f"{result.arrived:,} of {result.cut.flights:,} flights have arrived. Run it again to continue.")
    return Summary(options, result, agreements)


def _run_with_bars(options: job.Options, inputs: data.Inputs, console: Console) -> job.Result:
    columns = (TextColumn("{task.description:<15}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        tasks = {query.name: bars.add_task(query.name, total=inputs.arrived_rows) for query in job.QUERIES}
        return job.run(options, inputs, lambda name, rows: bars.update(tasks[name], completed=rows))


def _paces(options: job.Options, result: job.Result) -> Table:
    table = Table(title=f"state in {masked(options.backend)}", title_justify="left")
    table.add_column("query", no_wrap=True)
    for heading in ("flights", "batches", "seconds", "flights/s", "steady flights/s"):
        table.add_column(heading, justify="right")
    for name, pace in result.paces.items():
        if pace.batches:
            speed = f"{pace.rows / pace.seconds:,.0f}"
            steady = "" if pace.steady is None else f"{pace.steady:,.0f}"
            table.add_row(name, f"{pace.rows:,}", str(pace.batches), f"{pace.seconds:.1f}", speed, steady)
        else:
            table.add_row(name, "0", "0")
    return table


def _show_answer(result: job.Result, console: Console) -> dict[str, truth.Agreement]:
    flights = truth.flights_with_weather(result.arrived)
    joined = truth.compare_flights(result.outputs["flights_weather"].to_pandas(), flights)
    counted = truth.compare_counts(result.outputs["carrier_counts"].to_pandas(), truth.carrier_counts(flights))
    _show_agreement(console, joined, "flights have the weather of the independent as-of join")
    _show_agreement(console, counted, "carriers have the right count")
    return {"flights_weather": joined, "carrier_counts": counted}


def _show_agreement(console: Console, agreement: truth.Agreement, what: str) -> None:
    verdict = "[bold green]yes[/]" if agreement.complete else "[bold red]NO[/]"
    surplus = f", and {agreement.surplus:,} rows too many" if agreement.surplus else ""
    console.print(f"{verdict}  {agreement.equal:,} of {agreement.expected:,} {what}{surplus}.", highlight=False)


def _show_lesson(console: Console) -> None:
    lesson = truth.lesson(truth.flights_with_weather())
    console.print(
        "The flights arrived up to two days late. A table that knows only the latest observation would have joined "
        f"{lesson.wrong_hour:.1%} of them with the weather of another hour, {lesson.wrong_values:.1%} with other "
        "values; the versioned table looks each one up as of its departure.",
        highlight=False,
    )
