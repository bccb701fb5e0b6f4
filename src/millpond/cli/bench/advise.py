"""``millpond advise``: the choice of a backend and its options, from measurements on this machine.

Rule of this module: options and messages live here; measurements and judgement are in ``millpond.bench.advice``.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from millpond.cli.bench.options import Directory, JsonFile, PageFile, Repeat, Seed, console
from millpond.cli.terminal import ending
from millpond.cli.terminal.teaching import lesson
from millpond.errors import InvalidArgumentError, MissingArgumentError

if TYPE_CHECKING:
    from millpond.bench.advice.candidates import Candidate
    from millpond.bench.advice.description import Description
    from millpond.bench.advice.measuring import Effort, Measurements, Say

T = TypeVar("T")

app = typer.Typer()

MEASURE = "How fast it is"
"""The panel of the commands that measure."""

_WIDTH = 190


@app.command(
    "advise",
    rich_help_panel=MEASURE,
    epilog=lesson(
        "millpond advise --keys 20M --value-size 200 --memory 3GiB --workers 2",
        "millpond advise CHECKPOINT --state-dir STATE --reads 0.5",
        codes="1 if no backend fits",
        read="docs/choosing.md",
    ),
)
def advise(
    context: typer.Context,
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="CHECKPOINT", help="the checkpointLocation of a query whose state is to describe the job"
        ),
    ] = None,
    state_dir: Annotated[str | None, typer.Option(help="the job's state_dir, for the sizes of its rows")] = None,
    keys: Annotated[str | None, typer.Option(help="rows of all stores that this machine holds, such as 20M")] = None,
    key_size: Annotated[str | None, typer.Option(help="bytes of a key; 16 by default")] = None,
    value_size: Annotated[str | None, typer.Option(help="bytes of a value; 100 by default")] = None,
    reads: Annotated[
        float | None, typer.Option(help="the share of operations that read a row; half of the rest")
    ] = None,
    scans: Annotated[float, typer.Option(help="the share that scan; what is left are writes")] = 0.0,
    expiring: Annotated[
        float,
        typer.Option(help="the share that put a row of a new window, or delete one of a window that is over"),
    ] = 0.0,
    scan_rows: Annotated[int, typer.Option(min=1, help="rows of a scan")] = 50,
    memory: Annotated[
        str | None, typer.Option(help="what state may take of this machine's memory; half of it by default")
    ] = None,
    disk: Annotated[
        str | None, typer.Option(help="what local copies may take of its disk; what is free by default")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Python workers that share the memory, one for each core of an executor")
    ] = 1,
    batch: Annotated[int | None, typer.Option(min=1, help="rows of a commit in one store; 1000 by default")] = None,
    durability: Annotated[
        str, typer.Option(help="none, or synced if each commit must be on the local disk when it returns")
    ] = "none",
    directory: Directory = None,
    backend: Annotated[
        list[str] | None,
        typer.Option(help="a name or a URL of a backend to be considered; may be repeated; rocksdb, lmdb and memory"),
    ] = None,
    measurements: Annotated[
        Path | None, typer.Option(help="take times from this file of millpond bench engines --json, of this machine")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="about how long to measure")] = 60,
    repeat: Repeat = 3,
    seed: Seed = 1,
    json: JsonFile = None,
    html: PageFile = None,
) -> None:
    """Say which backend suits a job, with which options and why, from short measurements on this machine.

    Describe the job by --keys and the other options, or give the CHECKPOINT of a query; options override what is read
    there. Assumed values are shown.
    """
    from millpond.bench.advice import tables
    from millpond.bench.advice.candidates import candidate
    from millpond.bench.advice.judgement import advise as judged
    from millpond.bench.advice.measuring import Effort
    from millpond.bench.pages.advice import advice_page
    from millpond.bench.pages.frame import write_html
    from millpond.bench.report import as_json, document, write_text
    from millpond.bench.runs.asked import check_directory

    context.with_resource(ending.in_order())
    given: dict[str, Any] = {
        "keys": _count(keys, "--keys"),
        "key_bytes": _size(key_size, "--key-size"),
        "value_bytes": _size(value_size, "--value-size"),
        "memory_bytes": _size(memory, "--memory"),
        "disk_bytes": _size(disk, "--disk"),
        "batch": batch,
        "reads": reads,
    }
    fixed = {"scans": scans, "scan_rows": scan_rows, "workers": workers, "durability": durability, "expiring": expiring}
    check_directory(directory)
    description, assumed = _described({**given, **fixed}, checkpoint, state_dir, directory)
    candidates = [candidate(one, description) for one in dict.fromkeys(backend or ("rocksdb", "lmdb", "memory"))]
    effort = Effort(seconds, repeat, seed, directory)
    found, notes = _measured(description, candidates, effort, measurements)
    advice = judged(description, found.backends)
    caveats = [*notes, *tables.caveats(description, advice)]
    tables.print_advice(console(json, _WIDTH), description, assumed, found, advice, caveats)
    whole = document("advise", tables.to_dict(description, assumed, found, advice, caveats))
    if json is not None:
        write_text(json, as_json(whole))
    if html is not None:
        write_html(advice_page(whole), html)
    if advice.chosen is None:
        raise typer.Exit(1)


def _described(
    given: dict[str, Any], checkpoint: str | None, state_dir: str | None, directory: Path | None
) -> tuple["Description", list[str]]:
    """Return the description, and a line for each number in it that the user has not given."""
    from millpond.bench.advice.description import Description
    from millpond.bench.numbers import size

    assumed: list[str] = []
    if checkpoint is not None:
        from millpond.bench.advice.running_job import known_of

        known = known_of(checkpoint, state_dir)
        given = {name: getattr(known, name, None) if value is None else value for name, value in given.items()}
        assumed += known.notes
        assumed.append("this machine holds all of the query's state; if it holds a part, give that as --keys")
    elif state_dir is not None:
        raise MissingArgumentError("--state-dir is that of a query; give its CHECKPOINT, too")
    if given["keys"] is None:
        raise MissingArgumentError(
            "say how many rows there will be, as in --keys 20M, or give the CHECKPOINT of a query"
        )
    half, free = half_of_memory(), free_on(directory)
    shown: dict[str, tuple[Any, str]] = {
        "key_bytes": (16, "keys of 16 bytes (--key-size)"),
        "value_bytes": (100, "values of 100 bytes (--value-size)"),
        "batch": (1_000, "commits of 1,000 rows (--batch)"),
        "reads": (
            max(0.0, (1 - given["scans"] - given["expiring"]) / 2),
            "as many reads as writes, as where each row is read before it is written; no metric counts them (--reads)",
        ),
        "memory_bytes": (half, f"half of this machine's memory, {size(half)} (--memory)"),
        "disk_bytes": (free, f"what is free on the disk now, {size(free)} (--disk)"),
    }
    for name, (value, line) in shown.items():
        if given[name] is None:
            given[name] = value
            assumed.append(f"assumed: {line}")
    return Description(**given), assumed


def half_of_memory() -> int:
    """Return the bytes that state may take of this machine's memory by default."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def free_on(directory: Path | None) -> int:
    """Return the bytes that are free on the disk of a directory, by default the temporary one."""
    return shutil.disk_usage(directory or tempfile.gettempdir()).free


def _measured(
    description: "Description", candidates: "list[Candidate]", effort: "Effort", measurements: Path | None
) -> "tuple[Measurements, list[str]]":
    from rich.console import Console

    from millpond.bench.advice.earlier import measured_before, refuse_other
    from millpond.bench.advice.measuring import measure
    from millpond.bench.documents import read_document
    from millpond.bench.report import machine

    status = Console(stderr=True).status("measuring")
    say: Say = status.update
    if measurements is None:
        with status:
            return measure(description, candidates, effort, say), []
    results = read_document(measurements)
    notes = refuse_other(description, results, machine(), str(measurements))
    notes.append(f"Times are those of {measurements}; memory and disk of a row were measured now.")
    with status:
        return measured_before(description, candidates, results, effort, say), notes


def _count(text: str | None, option: str) -> int | None:
    return None if text is None else parsed_count(text, option)


def _size(text: str | None, option: str) -> int | None:
    return None if text is None else parsed_size(text, option)


def parsed_count(text: str, option: str) -> int:
    """Return a number of things that an option gives, such as 20M.

    Raises:
        ConfigurationError: it is no number.
    """
    from millpond.bench.advice.description import parse_count

    return _parsed(text, option, parse_count)


def parsed_size(text: str, option: str) -> int:
    """Return the bytes that an option gives, such as 4GiB.

    Raises:
        ConfigurationError: it is no size.
    """
    from millpond.stores.backend.options import parse_size

    return _parsed(text, option, parse_size)


def _parsed(text: str, option: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidArgumentError(f"{option} is {text!r}, but must be {error}") from None
