"""``millpond backends``: the installed backends, and the check of one against the contract.

Rule of this module: options and messages live here; descriptions of backends are in
``millpond.stores.backend.catalog``, tests in ``millpond.stores.testing``.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.terminal import completing
from millpond.cli.terminal.answers import AsJson, say_object
from millpond.cli.terminal.teaching import lesson
from millpond.errors import InvalidArgumentError

if TYPE_CHECKING:
    from millpond.stores.backend.catalog import BackendDescription
    from millpond.stores.backend.contract import BackendSupplier
    from millpond.stores.testing.report.figures import Figures

app = typer.Typer(
    help="List the backends that are installed, or check one.",
    epilog=lesson("millpond backends", "millpond backends --json", read="docs/backends.md"),
)


@app.callback(invoke_without_command=True)
def backends(
    context: typer.Context,
    json: AsJson = False,
) -> None:
    """List the backends that are installed, or check one.

    Of each: its distribution, what it can do, its options with types and defaults. One that cannot be used is listed
    with the reason.
    """
    if context.invoked_subcommand is not None:
        return
    from millpond.stores.backend.catalog import described

    for backend in described():
        if json:
            say_object(asdict(backend))
        else:
            typer.echo("\n".join(_lines(backend)))


def _lines(backend: "BackendDescription") -> Iterator[str]:
    distribution = f"{backend.distribution or 'an unknown distribution'} {backend.version or ''}".rstrip()
    yield f"{backend.name}  ({distribution}, {backend.registered})"
    if backend.error is not None:
        yield f"    cannot be used: {backend.error}"
        return
    kept = "keeps its content" if backend.persistent else "keeps nothing beyond its process"
    yield f"    {kept}; {'checksums of its own' if backend.checksums else 'no checksums of its own'}"
    if backend.capabilities is None:
        yield "    optional methods: only known once it is open"
    else:
        yield f"    optional methods: {', '.join(backend.capabilities) or 'none'}"
    if backend.options is None:
        yield "    options: its supplier does not declare them"
    for option in backend.options or ():
        default = "must be given" if option.default is None else f"{option.default} by default"
        yield f"    {option.name}: {option.type}, {default}"


@app.command(
    "check",
    epilog=lesson(
        "millpond backends check lmdb",
        "millpond backends check 'rocksdb://?wal=false' --report > figures.txt",
        "millpond backends check redis --opt-out 'files=a server keeps them' --json",
        codes="1 if it does not keep the contract",
        read="docs/writing-a-backend.md",
    ),
)
def check(
    context: typer.Context,
    backend: Annotated[
        str,
        typer.Argument(
            metavar="BACKEND",
            help="a name, or a URL such as lmdb://?sync=true",
            show_default=False,
            autocompletion=completing.backend_names,
        ),
    ],
    opt_out: Annotated[
        list[str] | None,
        typer.Option(metavar="FEATURE=REASON", help="a feature that the backend cannot have; may be repeated"),
    ] = None,
    examples: Annotated[int, typer.Option(metavar="N", min=1, help="how many random histories are tried")] = 40,
    report: Annotated[
        bool, typer.Option("--report", help="then measure it beside memory: a table of Markdown for a README")
    ] = False,
    changes: Annotated[
        int, typer.Option(metavar="N", min=10_000, help="how many changes show what grows in the report")
    ] = 1_000_000,
    json: AsJson = False,
) -> None:
    """Run the conformance kit on a backend, in a temporary directory, and say what it saw.

    With --report, a table of speed, growth, space, open files and syncs beside those of memory comes after it, for a
    backend that keeps the contract. With --json or --report, what pytest says goes to the standard error.
    """
    from millpond.stores.backend.registry import supplier
    from millpond.stores.testing.run import run_kit

    json = json or bool(context.parent and context.parent.params.get("json"))
    tried = supplier(backend)
    outcome = run_kit(backend, dict(map(_opt_out, opt_out or ())), examples=examples, aside=json or report)
    figures = _measured(tried, changes) if report and outcome.kept else []
    if json:
        say_object({**outcome.to_dict(), **({"figures": [asdict(one) for one in figures]} if report else {})})
    elif figures:
        from millpond.stores.testing.report.table import table

        typer.echo(table(figures))
    if not outcome.kept:
        raise typer.Exit(1)


def _measured(tried: "BackendSupplier", changes: int) -> list["Figures"]:
    """Return the figures of a backend, with the figures of memory beside them."""
    from millpond.stores.backend.registry import supplier
    from millpond.stores.testing.report.figures import measured

    compared = [] if tried.name == "memory" else [supplier("memory")]
    return [measured(one, changes) for one in (tried, *compared)]


def _opt_out(text: str) -> tuple[str, str]:
    feature, separator, reason = text.partition("=")
    if not separator:
        raise InvalidArgumentError(f"--opt-out is {text!r}; give FEATURE=REASON, as in --opt-out 'files=it has none'")
    return feature, reason
