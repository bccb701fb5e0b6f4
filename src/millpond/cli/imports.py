"""``millpond import``: the import of other systems' state into stores or files.

Rule of this module: options and messages live here; the work of a command lives in modules that it imports when it
runs.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.terminal import completing, durations
from millpond.cli.terminal.answers import AsJson, say
from millpond.cli.terminal.teaching import lesson
from millpond.errors import InvalidArgumentError

if TYPE_CHECKING:
    from millpond.adapters.kafka_streams.targets import Target
    from millpond.stores.specs.store_spec import StoreKind

app = typer.Typer(no_args_is_help=True, help="Bring along the state of other systems.")

_PARQUET = "parquet:"


@app.callback()
def bring() -> None:
    """Bring along the state of other systems."""


@app.command(
    "kafka-streams",
    epilog=lesson(
        "millpond import kafka-streams /kafka/shop --store counts --key-serde string --value-serde int64 "
        "--to parquet:counts.parquet",
        'millpond import kafka-streams /kafka/shop --store prices --kind versioned --retention "7 days" --to stores',
        'millpond import kafka-streams /kafka/shop --store sales --window-size "1 hour" --to parquet:sales.parquet',
        read="docs/coming-from-kafka-streams.md",
    ),
)
def kafka_streams(
    state_dir: Annotated[
        Path, typer.Argument(metavar="DIR", help="the directory of an application, of a task, or of the store")
    ],
    store: Annotated[str, typer.Option(metavar="NAME", help="the store's name")],
    to: Annotated[str, typer.Option(metavar="PLACE", help="parquet:FILE, or the directory in which a store is made")],
    backend: Annotated[
        str,
        typer.Option(
            metavar="BACKEND",
            autocompletion=completing.backend_names,
            help="of the store that is made: a name, or a URL such as lmdb://?sync=true",
        ),
    ] = "rocksdb",
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            autocompletion=completing.store_kinds,
            help="where the files do not tell: key-value, versioned, window or session",
        ),
    ] = None,
    key_serde: Annotated[
        str,
        typer.Option(metavar="SERDE", help="bytes, string, int64 (Kafka's Long), float64 (Double) or json"),
    ] = "bytes",
    value_serde: Annotated[str, typer.Option(metavar="SERDE", help="the same for values")] = "bytes",
    retention: Annotated[
        str | None,
        typer.Option(metavar=durations.DURATION, help="how long windows, sessions or versions stay: '5 minutes'"),
    ] = None,
    window_size: Annotated[
        str | None, typer.Option(metavar=durations.DURATION, help="how long the windows of a window store are")
    ] = None,
    retain_duplicates: Annotated[
        bool, typer.Option("--retain-duplicates", help="the windows have each put, as those of joins of streams do")
    ] = False,
    without_checkpoint: Annotated[
        bool, typer.Option("--without-checkpoint", help="also read a store whose task has no sound .checkpoint")
    ] = False,
    json: AsJson = False,
) -> None:
    """Read a store of Kafka Streams out of its RocksDB, check every row, and write all into a store or a Parquet file.

    The application has to be stopped. Its directory is only read. All tasks that are there become one store.
    """
    from millpond.adapters.kafka_streams.importing import Import
    from millpond.stores.encoding.serdes import serde

    report = Import(
        state_dir,
        store,
        _target(to, backend),
        kind=_kind(kind),
        key_serde=serde(key_serde),
        value_serde=serde(value_serde),
        retention=_millis("--retention", retention),
        window_size=_millis("--window-size", window_size),
        retain_duplicates=retain_duplicates,
        without_checkpoint=without_checkpoint,
    ).run()
    say(report, json)


def _target(to: str, backend: str) -> "Target":
    from millpond.adapters.kafka_streams.targets import ParquetTarget, StoreTarget

    if to.startswith(_PARQUET):
        return ParquetTarget(Path(to.removeprefix(_PARQUET)))
    return StoreTarget(Path(to), backend)


def _kind(name: str | None) -> "StoreKind | None":
    from millpond.adapters.kafka_streams.kinds import KINDS

    found = [kind for kind in KINDS if kind.value == name]
    if name is not None and not found:
        raise InvalidArgumentError(f"--kind is {name!r}; the kinds are {', '.join(kind.value for kind in KINDS)}")
    return found[0] if found else None


def _millis(option: str, text: str | None) -> int | None:
    return None if text is None else durations.millis(option, text)
