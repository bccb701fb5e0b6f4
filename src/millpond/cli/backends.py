"""``millpond backends``: which backends there are, and whether one keeps the contract.

Rule of this module: options and messages live here; what is known of a backend is in ``millpond.stores.catalog``, and
how it is tested in ``millpond.stores.testing``.
"""

from collections.abc import Iterator
from dataclasses import asdict
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.errors import ConfigurationError

if TYPE_CHECKING:
    from millpond.stores.catalog import BackendDescription

app = typer.Typer(help="List the backends that are installed, or check one.")


@app.callback(invoke_without_command=True)
def backends(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="print JSON, an object on each line")] = False,
) -> None:
    """List the backends that are installed, or check one.

    Of each: its distribution, what it can do, its options with types and defaults. One that cannot be used is listed
    with the reason.
    """
    if context.invoked_subcommand is not None:
        return
    from millpond.stores.catalog import described

    for backend in described():
        typer.echo(dumps(asdict(backend)) if json else "\n".join(_lines(backend)))


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


@app.command("check")
def check(
    backend: Annotated[str, typer.Argument(help="a name, or a URL such as lmdb://?sync=true")],
    opt_out: Annotated[
        list[str] | None, typer.Option(help="FEATURE=REASON, for a feature that the backend cannot have; repeatable")
    ] = None,
    examples: Annotated[int, typer.Option(min=1, help="how many random histories are tried")] = 40,
) -> None:
    """Run the conformance kit on a backend, in a temporary directory, and say what it saw.

    Exit code 1: it does not keep the contract.
    """
    from millpond.stores.registry import supplier
    from millpond.stores.testing.run import run_kit

    supplier(backend)
    if not run_kit(backend, dict(map(_opt_out, opt_out or ())), examples=examples):
        raise typer.Exit(1)


def _opt_out(text: str) -> tuple[str, str]:
    feature, separator, reason = text.partition("=")
    if not separator:
        raise ConfigurationError(f"--opt-out is {text!r}; give FEATURE=REASON")
    return feature, reason
