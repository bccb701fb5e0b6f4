"""``millpond state repartition`` and ``evolve``.

Rule of this module: options and messages live here; ``millpond.adapters.spark.evolution.reshaping`` carries state over.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.state import (
    CHANGE,
    CheckpointPlace,
    SinkName,
    StateDir,
    Workers,
    query_state,
    topology_named,
)
from millpond.cli.terminal.answers import AsJson, say
from millpond.cli.terminal.teaching import lesson
from millpond.errors import InvalidArgumentError

if TYPE_CHECKING:
    from millpond.adapters.spark.evolution.reshaping import Reshaping

app = typer.Typer()

_CHANGED = "What has changed"


@app.command(
    "repartition",
    rich_help_panel=CHANGE,
    epilog=lesson(
        "millpond state repartition CHECKPOINT --state-dir STATE --partitions 64",
        read="docs/upgrading.md",
    ),
)
def state_repartition(
    checkpoint: CheckpointPlace,
    state_dir: StateDir,
    partitions: Annotated[int, typer.Option(metavar="N", min=1, help="how many tasks each sub-topology or verb gets")],
    sink: SinkName = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Carry the state of a query that is not running over to another number of partitions, verbs included.

    The job then has to give that number, or none. Where the state has it already, nothing is done.
    """
    with _reshaping(checkpoint, state_dir, sink, workers) as reshaping:
        for done in reshaping.repartition(partitions):
            say(done, json)


@app.command(
    "evolve",
    rich_help_panel=CHANGE,
    epilog=lesson(
        "millpond state evolve CHECKPOINT --state-dir STATE --topology jobs:flights --dry-run",
        "millpond state evolve CHECKPOINT --state-dir STATE --topology jobs:flights --rename counts=totals --drop old",
        "millpond state evolve CHECKPOINT --state-dir STATE --topology jobs:flights --convert prices=versioned "
        "--valid-from prices=2026-01-01T00:00:00Z",
        codes="1 if the state cannot become that of the topology, or would lose what nobody accepted; nothing was "
        "done, or with --dry-run would be",
        read="docs/upgrading.md",
    ),
)
def state_evolve(
    checkpoint: CheckpointPlace,
    state_dir: StateDir,
    topology: Annotated[
        str, typer.Option(metavar="MODULE:NAME", help="the topology that is to run, as Python imports it")
    ],
    partitions: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="as many as the state has by default")
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", rich_help_panel=_CHANGED, help="a store's names; may be repeated"),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="STORE", rich_help_panel=_CHANGED, help="a store that is gone; may be repeated"),
    ] = None,
    convert: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STORE=KIND", rich_help_panel=_CHANGED, help="the kind of one that was of another; may be repeated"
        ),
    ] = None,
    valid_from: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STORE=TIME",
            rich_help_panel=_CHANGED,
            help="ISO 8601 with zone, or milliseconds since 1970: of versions whose time is unknown; may be repeated",
        ),
    ] = None,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", rich_help_panel=_CHANGED, help="lose what the new kinds do not keep"),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would be done and lost")] = False,
    sink: SinkName = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Carry the state of a query that is not running over to a changed topology.

    It does what evolution=Evolution(...) does when the job is started. Where the state fits, nothing is done.
    """
    from millpond.stores.encoding.times import time_in, to_instant
    from millpond.stores.evolution.matching import Declared
    from millpond.stores.evolution.previewing import Preview

    found = topology_named(topology)
    assert found is not None
    with _reshaping(checkpoint, state_dir, sink, workers) as reshaping:
        declared = Declared(
            _pairs("--rename", rename, "OLD=NEW, as in --rename counts=totals"),
            drop or [],
            _pairs("--convert", convert, "STORE=KIND, as in --convert prices=versioned"),
            {
                store: to_instant(time_in(text, "--valid-from"), "--valid-from")
                for store, text in _pairs(
                    "--valid-from", valid_from, "STORE=TIME, as in --valid-from prices=2026-01-31T00:00:00+00:00"
                ).items()
            },
            accept_loss,
        )
        came = reshaping.evolve(found, partitions, declared, dry_run=dry_run)
        say(came, json)
        if isinstance(came, Preview) and came.refused is not None:
            raise typer.Exit(1)


def _pairs(option: str, pairs: list[str] | None, form: str) -> dict[str, str]:
    found = {}
    for pair in pairs or []:
        name, _, value = pair.partition("=")
        if not name or not value:
            raise InvalidArgumentError(f"{option} is {pair!r}, half of a pair; give {form}")
        found[name] = value
    return found


@contextmanager
def _reshaping(checkpoint: str, state_dir: str, sink: str | None, workers: int) -> "Iterator[Reshaping]":
    with query_state(checkpoint, state_dir, None, workers) as query:
        from millpond.adapters.spark.evolution.reshaping import Reshaping

        yield Reshaping(query.checkpoint, query.storage, sink, workers)
