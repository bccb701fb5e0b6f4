"""``millpond state list``, ``get``, ``scan`` and so on, which look at the state of a query without Spark.

Rule of this module: options and messages live here; the work of a command lives in ``millpond.adapters.inspect``. Rows
go to the standard output, in columns that tabs divide, or as JSON, an object on each line; all else goes to the other.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.own_process import do_without_pandas
from millpond.cli.state import (
    LOOK,
    BatchNumber,
    CheckpointPlace,
    SinkName,
    StateDir,
    TopologyName,
    Workers,
    topology_named,
)
from millpond.cli.terminal import completing
from millpond.cli.terminal.answers import AsJson
from millpond.cli.terminal.teaching import lesson

if TYPE_CHECKING:
    import pyarrow as pa

    from millpond.adapters.inspect import Selection, StateInspector
    from millpond.adapters.inspect.store_view import StoreView

app = typer.Typer()

StoreName = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="the store's name",
        show_default=False,
        autocompletion=completing.store_names,
    ),
]
KeyText = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="a key: text, a number, hexadecimal digits, JSON; a verb's columns as a JSON array or object",
        show_default=False,
    ),
]
Application = Annotated[str | None, typer.Option(metavar="NAME", help="the application, if the query has several")]
AsOf = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="ISO 8601 with zone, or milliseconds since 1970: of a versioned store"),
]
From = Annotated[str | None, typer.Option("--from", metavar="KEY", help="the first key, included")]
To = Annotated[str | None, typer.Option("--to", metavar="KEY", help="the key before which to end")]
Limit = Annotated[int | None, typer.Option(metavar="ROWS", min=0, help="print no more rows than these")]


@app.command(
    "list",
    rich_help_panel=LOOK,
    epilog=lesson(
        "millpond state list CHECKPOINT --state-dir STATE",
        "millpond state list CHECKPOINT --state-dir STATE --batch 41 --json",
        read="docs/looking-at-state.md",
    ),
)
def state_list(
    checkpoint: CheckpointPlace,
    state_dir: StateDir,
    batch: BatchNumber = None,
    topology: TopologyName = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """List the stores of a query, and how many bytes of durable files their rows take."""
    from millpond.adapters.inspect.sizes import bytes_by_store

    inspector = state_inspector(checkpoint, state_dir, topology, workers)
    views = inspector.stores(batch)
    sizes = bytes_by_store(inspector, views)
    _say([{**_short(view), "bytes": size} for view, size in zip(views, sizes, strict=True)], json)


@app.command(
    "describe",
    rich_help_panel=LOOK,
    epilog=lesson(
        "millpond state describe CHECKPOINT counts --state-dir STATE",
        read="docs/looking-at-state.md",
    ),
)
def state_describe(
    checkpoint: CheckpointPlace,
    store: StoreName,
    state_dir: StateDir,
    batch: BatchNumber = None,
    sink: SinkName = None,
    application: Application = None,
    topology: TopologyName = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Describe a store: its kind, its columns, and each task's part of it."""
    view = _view(checkpoint, store, state_dir, batch, sink, application, topology, workers)
    facts = {**_short(view), **dict(view.shape.facts()), "value serde": view.value_serde}
    facts |= {"batch": view.batch, "of_tasks": view.partitions}
    columns = {field.name: str(field.type) for field in view.schema}
    tasks = {
        part.task_id: {"files": len(part.manifest.stored), "commit": part.manifest.sequence} for part in view.parts
    }
    if json:
        _say([{**facts, "columns": columns, "state_of_tasks": tasks}], json)
        return
    _say([{"what": what, "is": value} for what, value in facts.items()], json)
    _say([{"column": name, "type": type_} for name, type_ in columns.items()], json)
    _say([{"task": task, **found} for task, found in tasks.items()], json)


@app.command(
    "get",
    rich_help_panel=LOOK,
    epilog=lesson(
        "millpond state get CHECKPOINT counts mill --state-dir STATE",
        "millpond state get CHECKPOINT rolling '[\"mill\", 7]' --state-dir STATE  # the columns of a verb's key",
        "millpond state get CHECKPOINT prices mill --as-of 2026-01-31T00:00:00Z --state-dir STATE",
        codes="1 if there is nothing for the key",
        read="docs/looking-at-state.md",
    ),
)
def state_get(
    checkpoint: CheckpointPlace,
    store: StoreName,
    key: KeyText,
    state_dir: StateDir,
    batch: BatchNumber = None,
    as_of: AsOf = None,
    sink: SinkName = None,
    application: Application = None,
    topology: TopologyName = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Get the rows of a key from a store: one, or one for each window or session."""
    from millpond.stores.encoding.times import time_in

    view = _view(checkpoint, store, state_dir, batch, sink, application, topology, workers)
    found = view.get(view.form.key.parse(key), None if as_of is None else time_in(as_of, "--as-of"))
    _say_found(found, view, "nothing for", key, json)


@app.command(
    "scan",
    rich_help_panel=LOOK,
    epilog=lesson(
        "millpond state scan CHECKPOINT counts --state-dir STATE --limit 10",
        "millpond state scan CHECKPOINT counts --state-dir STATE --from a --to b --json | head",
        read="docs/looking-at-state.md",
    ),
)
def state_scan(
    checkpoint: CheckpointPlace,
    store: StoreName,
    state_dir: StateDir,
    from_: From = None,
    to: To = None,
    limit: Limit = None,
    as_of: AsOf = None,
    batch: BatchNumber = None,
    sink: SinkName = None,
    application: Application = None,
    topology: TopologyName = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Print the rows of a store, task by task, in the order of their keys' bytes."""
    view = _view(checkpoint, store, state_dir, batch, sink, application, topology, workers)
    _say_rows(view.rows(_selection(view, from_, to, as_of)), view.schema, json, limit)


@app.command(
    "history",
    rich_help_panel=LOOK,
    epilog=lesson(
        "millpond state history CHECKPOINT prices mill --state-dir STATE",
        codes="1 if there is no version of the key",
        read="docs/looking-at-state.md",
    ),
)
def state_history(
    checkpoint: CheckpointPlace,
    store: StoreName,
    key: KeyText,
    state_dir: StateDir,
    batch: BatchNumber = None,
    sink: SinkName = None,
    application: Application = None,
    topology: TopologyName = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Print all versions of a key of a versioned store, the oldest first."""
    view = _view(checkpoint, store, state_dir, batch, sink, application, topology, workers)
    _say_found(view.history(view.form.key.parse(key)), view, "no version of", key, json)


@app.command(
    "diff",
    rich_help_panel=LOOK,
    epilog=lesson(
        "millpond state diff CHECKPOINT counts --state-dir STATE --from-batch 40",
        "millpond state diff CHECKPOINT counts --state-dir STATE --from-batch 40 --to-batch 41 --json",
        read="docs/looking-at-state.md",
    ),
)
def state_diff(
    checkpoint: CheckpointPlace,
    store: StoreName,
    state_dir: StateDir,
    from_batch: Annotated[int, typer.Option(metavar="N", help="what has changed since this micro-batch")],
    to_batch: Annotated[int | None, typer.Option(metavar="N", help="up to this one; the last one by default")] = None,
    from_: From = None,
    to: To = None,
    limit: Limit = None,
    sink: SinkName = None,
    application: Application = None,
    topology: TopologyName = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Print the rows of a store that were inserted, updated and deleted between two micro-batches, task by task."""
    from millpond.adapters.inspect.changes import change_schema, changes

    inspector = state_inspector(checkpoint, state_dir, topology, workers)
    before, after = (
        inspector.store(store, batch=batch, sink=sink, application_id=application) for batch in (from_batch, to_batch)
    )
    found = changes(before, after, _selection(after, from_, to, None))
    _say_rows(found, change_schema(after.schema), json, limit)


@app.command(
    "export",
    rich_help_panel=LOOK,
    epilog=lesson(
        "millpond state export CHECKPOINT counts counts.parquet --state-dir STATE",
        read="docs/looking-at-state.md",
    ),
)
def state_export(
    checkpoint: CheckpointPlace,
    store: StoreName,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="ends with .parquet, .csv or .json (an object on each line)")
    ],
    state_dir: StateDir,
    from_: From = None,
    to: To = None,
    as_of: AsOf = None,
    batch: BatchNumber = None,
    sink: SinkName = None,
    application: Application = None,
    topology: TopologyName = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Write the rows of a store into a file, which is replaced if it is there."""
    from millpond.adapters.inspect.row_texts import Writer

    view = _view(checkpoint, store, state_dir, batch, sink, application, topology, workers)
    rows = 0
    with Writer(file, view.schema) as writer:
        for part in view.rows(_selection(view, from_, to, as_of)):
            writer.write(part)
            rows += part.num_rows
    _say([{"store": store, "batch": view.batch, "rows": rows, "file": str(file)}], json)


@app.command(
    "size",
    rich_help_panel=LOOK,
    epilog=lesson(
        "millpond state size CHECKPOINT --state-dir STATE",
        read="docs/looking-at-state.md",
    ),
)
def state_size(
    checkpoint: CheckpointPlace,
    state_dir: StateDir,
    batch: BatchNumber = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Say how many files and bytes the durable state takes: by task, by store, and for all retained micro-batches."""
    from millpond.adapters.inspect.sizes import state_size as measured

    found = measured(state_inspector(checkpoint, state_dir, None, workers), batch)
    if json:
        _say([found.to_dict()], json)
        return
    _say([{**vars(task), "stores": len(task.stores)} for task in found.tasks], json)
    _say([{"store": store, "bytes": size} for store, size in found.stores.items()], json)
    typer.echo(
        f"micro-batch {found.batch}: {found.size} bytes; the {found.batches} that are retained need "
        f"{found.retained_files} files of {found.retained_size} bytes, {found.shared_size} of them in common",
        err=True,
    )


def state_inspector(checkpoint: str, state_dir: str, topology: str | None, workers: int) -> "StateInspector":
    """Return the inspector of a query's state, with the serdes and limits of a topology if one is named."""
    if topology is None:
        do_without_pandas()
    from millpond.adapters.inspect import StateInspector

    found = topology_named(topology)
    return StateInspector.at(checkpoint, state_dir, workers=workers, specs={} if found is None else found.stores)


def _view(
    checkpoint: str,
    store: str,
    state_dir: str,
    batch: int | None,
    sink: str | None,
    application: str | None,
    topology: str | None,
    workers: int,
) -> "StoreView":
    inspector = state_inspector(checkpoint, state_dir, topology, workers)
    return inspector.store(store, batch=batch, sink=sink, application_id=application)


def _selection(view: "StoreView", from_: str | None, to: str | None, as_of: str | None) -> "Selection":
    from millpond.adapters.inspect import Selection
    from millpond.stores.encoding.times import time_in

    parse = view.form.key.parse
    return Selection(
        None if from_ is None else parse(from_),
        None if to is None else parse(to),
        None if as_of is None else time_in(as_of, "--as-of"),
    )


def _short(view: "StoreView") -> dict[str, Any]:
    shape = view.shape
    return {
        "store": view.name,
        "kind": view.kind,
        "key": shape.key_serde,
        "value": view.value_serde,
        "tasks": len(view.parts),
        "sink": view.sink,
        "application": view.application_id,
    }


def _say(rows: list[dict[str, Any]], json: bool) -> None:
    """Print objects, which all have the same entries."""
    from millpond.adapters.inspect.row_texts import cells, line_of

    if rows and not json:
        typer.echo("\t".join(rows[0]))
    for row in rows:
        typer.echo(line_of(row) if json else "\t".join(cells(row)))


def _say_found(found: "pa.Table | None", view: "StoreView", absence: str, key: str, json: bool) -> None:
    """Print the rows of a key; exit with 1 if there are none."""
    if found is None or not found.num_rows:
        typer.echo(f"store {view.name!r} has {absence} the key {key!r} after micro-batch {view.batch}", err=True)
        raise typer.Exit(1)
    _say_rows(iter(found.to_batches()), view.schema, json)


def _say_rows(batches: "Iterator[pa.RecordBatch]", schema: "pa.Schema", json: bool, limit: int | None = None) -> None:
    from millpond.adapters.inspect.row_texts import cells, line_of, objects

    if not json:
        typer.echo("\t".join(schema.names))
    for row in islice((row for batch in batches for row in objects(batch)), limit):
        typer.echo(line_of(row) if json else "\t".join(cells(row)))
