"""``millpond state``: the group of commands, and the base of its commands.

Rule of this module: it has options of several commands, and their way to find a query; the commands have modules of
their own: ``inspecting``, ``upkeep``, ``backups``, ``reshaping``, ``editing``, ``warming`` and ``cleaning``.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.terminal.teaching import lesson
from millpond.errors import InvalidArgumentError, UnknownNameError

if TYPE_CHECKING:
    from millpond.adapters.spark.copies.upkeep import QueryState
    from millpond.processors import Topology

app = typer.Typer(
    no_args_is_help=True,
    help="Look at the state of a query on Spark, and look after it.",
    epilog=lesson(
        "millpond state list CHECKPOINT --state-dir STATE  # which stores there are",
        "millpond state get CHECKPOINT counts mill --state-dir STATE  # what one has for a key",
        "millpond state verify CHECKPOINT --state-dir STATE  # whether all of it is as it was written",
        read="docs/command-line.md",
    ),
)

STATE = "The state of your queries"
"""The panel of ``millpond --help`` with commands that show or change state."""

LOOK = "Look at it, without Spark"
KEEP = "Keep it sound"
CHANGE = "Change it"
"""The panels of the help for the commands."""

CheckpointPlace = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="the query's checkpointLocation, a path or URL", show_default=False)
]
StateDir = Annotated[str, typer.Option(metavar="PLACE", help="the job's state_dir, a path or URL")]
LocalDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="the job's local_dir, to compare the local copies of this machine"),
]
BatchNumber = Annotated[
    int | None, typer.Option(metavar="N", help="the state after this micro-batch; the last one by default")
]
Workers = Annotated[int, typer.Option(metavar="N", min=1, help="files that are read at the same time")]
TopologyName = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:NAME", help="a topology, as Python imports it, whose stores' rows are read with their serdes"
    ),
]
SinkName = Annotated[
    str | None, typer.Option(metavar="NAME", help="the sink that the query writes, if its application has several")
]


@contextmanager
def query_state(checkpoint: str, state_dir: str, local_dir: Path | None, workers: int) -> "Iterator[QueryState]":
    """The state of a query, with a Spark on this machine to read the checkpoint."""
    from millpond.adapters.inspect.checkpoint.retained_batches import no_checkpoint
    from millpond.demo import session

    if "://" not in checkpoint and not Path(checkpoint.removeprefix("file:")).exists():
        raise no_checkpoint(checkpoint)  # before Spark starts, which takes seconds
    with TemporaryDirectory(prefix="millpond-") as directory:
        spark = session.start("millpond state", Path(directory), partitions=1)

        from millpond.adapters.spark.copies.upkeep import QueryState
        from millpond.adapters.spark.session.checkpoint import Checkpoint
        from millpond.stores.durability import Storage

        yield QueryState(Checkpoint(spark, checkpoint), Storage.from_uri(state_dir), local_dir, workers)


def topology_named(name: str | None) -> "Topology | None":
    """Return the topology of MODULE:NAME; None for none.

    Raises:
        ConfigurationError: there is no such topology.
    """
    if name is None:
        return None
    from millpond.processors import Topology

    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownNameError(
            f"there is no topology {name!r}: {error}; give MODULE:NAME, as in jobs:flights"
        ) from error
    if not isinstance(found, Topology):
        raise InvalidArgumentError(
            f"{name!r} is of type {type(found).__name__}; give what StreamsBuilder.build returned"
        )
    return found
