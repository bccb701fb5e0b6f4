"""The base of the commands of ``millpond bench``: options that look and mean the same, and their reports."""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from millpond.errors import MissingPackageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import Console

WRITTEN: Final = "what --json of bench engines, stores, processors, spark, nexmark or latency has written"
"""The help of a file of results."""

Backends: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--backend", help="a name or a URL such as lmdb://?sync=true; may be repeated; the built-in ones by default"
    ),
]
Seed: TypeAlias = Annotated[int, typer.Option("--seed", min=0, help="of all chance; the same seed does the same")]
Tuned: TypeAlias = Annotated[
    bool,
    typer.Option("--tuned", help="give Spark the settings that make it fastest here, not only those of configure"),
]
Repeat: TypeAlias = Annotated[
    int, typer.Option("--repeat", min=1, help="how often each is measured; the median counts")
]
Timeout: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="how long a run may take; one that takes longer is ended, and told as failed; for ever by default",
    ),
]
FlinkPython: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--flink-python",
        envvar="MILLPOND_FLINK_PYTHON",
        help="a Python that has apache-flink, which does not go with Spark's packages; without it, no contender in "
        "Flink is measured",
    ),
]
Directory: TypeAlias = Annotated[
    Path | None,
    typer.Option("--directory", help="where the files go, on the file system to measure; the temporary directory"),
]
JsonFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--json", help="also write the figures to this file; - for the standard output, and nothing else"),
]


def _drawable(html: Path | None) -> Path | None:
    """Refuse a page before anything is measured for it, if the package that draws is not installed."""
    if html is not None:
        from millpond.bench.pages.drawing import require_drawing

        require_drawing()
    return html


PageFile: TypeAlias = Annotated[
    Path | None, typer.Option("--html", help="also write this file, a page that needs no network")
]
HtmlFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--html", callback=_drawable, help="also draw the figures on a page that needs no network, this file"),
]

Show: TypeAlias = "Callable[[Console, Any], None]"
"""A function that prints figures as tables."""


def console(json: Path | None, width: int) -> "Console":
    """Return the console for tables: the standard output, at least ``width`` wide, unless the figures go there."""
    from rich.console import Console

    from millpond.bench.report import STANDARD_OUTPUT

    return Console(width=max(Console().width, width), quiet=json == STANDARD_OUTPUT)


def report(
    benchmark: str,
    figures: "Mapping[str, Any]",
    show: Show,
    *,
    json: Path | None,
    width: int,
    html: Path | None = None,
) -> None:
    """Show figures, and write them to the files of ``--json`` and ``--html``, without secrets of a URL."""
    from millpond.bench.report import as_json, document, masked, write_text

    show(console(json, width), masked(figures))
    whole = document(benchmark, figures)
    if json is not None:
        write_text(json, as_json(whole))
    if html is not None:
        from millpond.bench.pages.page import write_page

        write_page(whole, html)


@contextmanager
def benchmark_extra() -> "Iterator[None]":
    """Import within it what may need a package that does not come with the bare library."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("millpond"):
            raise
        raise MissingPackageError(f"this benchmark needs {error.name}: pip install 'millpond[bench]'") from error
