"""``millpond state put``, ``delete``, ``reset-window``, ``set-timer``, ``undo`` and ``erase``: edit without Spark.

Rule of this module: options and messages live here; the edits are in ``millpond.adapters.edit``.
"""

from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from millpond.cli.inspecting import Application, KeyText, StoreName, state_inspector
from millpond.cli.state import CHANGE, CheckpointPlace, SinkName, StateDir, TopologyName, Workers
from millpond.cli.terminal.answers import AsJson, say
from millpond.cli.terminal.teaching import lesson

if TYPE_CHECKING:
    from millpond.adapters.edit import StateEditor
    from millpond.adapters.inspect.store_view import StoreView

app = typer.Typer()

By = Annotated[str | None, typer.Option(metavar="NAME", help="who edits, for the record; you by default")]
Why = Annotated[str, typer.Option(metavar="TEXT", help="the reason, for the record", show_default=False)]

_TIME = "ISO 8601 with zone, or milliseconds since 1970"
WindowStart = Annotated[
    str, typer.Argument(metavar="WINDOW_START", help=f"when the window or session starts: {_TIME}", show_default=False)
]


@app.command(
    "put",
    rich_help_panel=CHANGE,
    epilog=lesson(
        "millpond state put CHECKPOINT counts mill 7 --state-dir STATE --why 'a row was sent twice'",
        "millpond state put CHECKPOINT prices tea 3.1 --valid-from 2026-01-31T00:00:00Z --state-dir STATE",
        "millpond state put CHECKPOINT latest '[\"mill\"]' '{\"price\": 7}' --state-dir STATE  # of a verb",
        codes="1 if null is to delete what is not there",
        read="docs/editing-state.md",
    ),
)
def state_put(
    checkpoint: CheckpointPlace,
    store: StoreName,
    key: KeyText,
    value: Annotated[
        str,
        typer.Argument(
            metavar="VALUE",
            help="text, a number, hexadecimal digits, JSON; a verb's columns as a JSON object",
            show_default=False,
        ),
    ],
    state_dir: StateDir,
    timestamp: Annotated[str | None, typer.Option(metavar="TIME", help=f"of the value: {_TIME}")] = None,
    valid_from: Annotated[str | None, typer.Option(metavar="TIME", help=f"of a version: {_TIME}")] = None,
    window_start: Annotated[str | None, typer.Option(metavar="TIME", help=_TIME)] = None,
    window_end: Annotated[str | None, typer.Option(metavar="TIME", help=f"of a session: {_TIME}")] = None,
    ahead: Annotated[
        bool, typer.Option("--ahead", help="even if it moves the time by which windows, history and ttl end")
    ] = False,
    by: By = None,
    why: Why = "",
    sink: SinkName = None,
    application: Application = None,
    topology: TopologyName = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Put a row into a store of a query that is not running; the next start of the query goes on with it."""
    from millpond.adapters.inspect import store_form
    from millpond.stores.encoding.times import time_in

    times = {
        store_form.TIMESTAMP: timestamp,
        store_form.VALID_FROM: valid_from,
        store_form.WINDOW_START: window_start,
        store_form.WINDOW_END: window_end,
    }
    row: dict[str, Any] = {
        name: time_in(text, f"--{name.replace('_', '-')}") for name, text in times.items() if text is not None
    }
    with _editor(checkpoint, state_dir, by, why, topology, workers) as editor:
        form = editor.view(store, sink=sink, application_id=application).form
        row |= {store_form.KEY: form.key.parse(key), store_form.VALUE: form.value.parse(value)}
        editor.put(store, [row], ahead=ahead, sink=sink, application_id=application)
        if not _commit(editor, json) and row[store_form.VALUE] is None:
            _end_without(store, "nothing for the key", key)


@app.command(
    "delete",
    rich_help_panel=CHANGE,
    epilog=lesson(
        "millpond state delete CHECKPOINT counts mill --state-dir STATE --why 'poisoned'",
        codes="1 if there is nothing for the key",
        read="docs/editing-state.md",
    ),
)
def state_delete(
    checkpoint: CheckpointPlace,
    store: StoreName,
    key: KeyText,
    state_dir: StateDir,
    by: By = None,
    why: Why = "",
    sink: SinkName = None,
    application: Application = None,
    topology: TopologyName = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Delete a key from a store of a query that is not running, with all windows and all history.

    Files keep it, so that it can be undone; erase leaves nothing.
    """
    with _editor(checkpoint, state_dir, by, why, topology, workers) as editor:
        _delete(editor, store, key, None, sink, application, json)


@app.command(
    "reset-window",
    rich_help_panel=CHANGE,
    epilog=lesson(
        "millpond state reset-window CHECKPOINT rolling mill 2026-01-31T00:00:00Z --state-dir STATE",
        codes="1 if there is no such window",
        read="docs/editing-state.md",
    ),
)
def state_reset_window(
    checkpoint: CheckpointPlace,
    store: StoreName,
    key: KeyText,
    window_start: WindowStart,
    state_dir: StateDir,
    by: By = None,
    why: Why = "",
    sink: SinkName = None,
    application: Application = None,
    topology: TopologyName = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Delete one window or session of a key from a store of a query that is not running; it begins anew."""
    from millpond.stores.encoding.times import time_in

    with _editor(checkpoint, state_dir, by, why, topology, workers) as editor:
        _delete(editor, store, key, time_in(window_start, "WINDOW_START"), sink, application, json)


@app.command(
    "set-timer",
    rich_help_panel=CHANGE,
    epilog=lesson(
        "millpond state set-timer CHECKPOINT watch-timers mill 2026-01-31T00:00:00Z --name idle --state-dir STATE",
        "millpond state set-timer CHECKPOINT watch-timers mill null --name idle --state-dir STATE  # delete it",
        read="docs/editing-state.md",
    ),
)
def state_set_timer(
    checkpoint: CheckpointPlace,
    store: StoreName,
    key: KeyText,
    time: Annotated[
        str,
        typer.Argument(
            metavar="TIME",
            help=f"{_TIME}; null deletes the timer",
            show_default=False,
        ),
    ],
    state_dir: StateDir,
    name: Annotated[str, typer.Option(metavar="NAME", help="as the rule sets it", show_default=False)] = "",
    wall_clock: Annotated[
        bool, typer.Option("--wall-clock", help="a timer by the clock of the machine, and not by event time")
    ] = False,
    by: By = None,
    why: Why = "",
    sink: SinkName = None,
    application: Application = None,
    topology: TopologyName = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Set, move or delete a timer of a key of apply; it fires in the first micro-batch that reaches its time."""
    from millpond.stores.encoding.times import time_in

    when = None if time == "null" else time_in(time, "TIME")
    with _editor(checkpoint, state_dir, by, why, topology, workers) as editor:
        view = editor.view(store, sink=sink, application_id=application)
        editor.set_timer(
            store,
            editor.key_column(view).parse(key),
            when,
            name=name,
            wall_clock=wall_clock,
            sink=sink,
            application_id=application,
        )
        _commit(editor, json)


@app.command(
    "undo",
    rich_help_panel=CHANGE,
    epilog=lesson(
        "millpond state undo CHECKPOINT --state-dir STATE",
        codes="1 if the state was not edited last, or a micro-batch has followed",
        read="docs/editing-state.md",
    ),
)
def state_undo(
    checkpoint: CheckpointPlace,
    state_dir: StateDir,
    by: By = None,
    why: Why = "",
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Take back the last edit of the state of a query that has not been started since."""
    with _editor(checkpoint, state_dir, by, why, None, workers) as editor:
        for report in editor.undo():
            say(report, json)


@app.command(
    "erase",
    rich_help_panel=CHANGE,
    epilog=lesson(
        "millpond state erase CHECKPOINT person-17 --state-dir STATE --local-dir DIR --why 'request 12'",
        "millpond state erase CHECKPOINT '{\"customer\": 7}' --state-dir STATE  # all keys of a verb that have it",
        codes="1 if bytes of a key are still found, such as in rows of other keys, or nothing was found to erase",
        read="docs/editing-state.md",
    ),
)
def state_erase(
    checkpoint: CheckpointPlace,
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY...",
            help="keys: text, numbers, JSON; a verb's columns as a JSON array or object, or some of them as an object",
            show_default=False,
        ),
    ],
    state_dir: StateDir,
    local_dir: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="the job's local_dir on this machine; may be repeated")
    ] = None,
    by: By = None,
    why: Why = "",
    topology: TopologyName = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Erase keys from all stores of a query that is not running: from state, history, files, and what was left out.

    It cannot be undone, and the query cannot go back to an earlier micro-batch. All files are searched afterwards.
    """
    from millpond.adapters.edit import erase

    inspector = state_inspector(checkpoint, state_dir, topology, workers)
    report = erase(
        inspector, _parsed(inspector.stores(), keys), by=by or getuser(), why=why, local_dirs=local_dir or []
    )
    say(report, json)
    if report.traces or not report.edits:
        raise typer.Exit(1)


def _editor(
    checkpoint: str, state_dir: str, by: str | None, why: str, topology: str | None, workers: int
) -> "StateEditor":
    from millpond.adapters.edit import StateEditor

    return StateEditor(state_inspector(checkpoint, state_dir, topology, workers), by or getuser(), why)


def _delete(
    editor: "StateEditor",
    store: str,
    key: str,
    window_start: Any,
    sink: str | None,
    application: str | None,
    json: bool,
) -> None:
    parsed = editor.view(store, sink=sink, application_id=application).form.key.parse(key)
    if not editor.delete(store, parsed, window_start=window_start, sink=sink, application_id=application):
        _end_without(store, "nothing for the key" if window_start is None else "no such window of the key", key)
    _commit(editor, json)


def _end_without(store: str, what: str, key: str) -> NoReturn:
    """End because there is nothing to edit."""
    typer.echo(f"store {store!r} has {what} {key!r}", err=True)
    raise typer.Exit(1)


def _commit(editor: "StateEditor", json: bool) -> int:
    """Let the edits count, and print them; the editor has the edits of one or several queries."""
    reports = editor.commit()
    for report in reports:
        say(report, json)
    return len(reports)


def _parsed(views: "list[StoreView]", keys: list[str]) -> list[Any]:
    """Return each key in all meanings that it may have in one of the stores."""
    from millpond.errors import ConfigurationError

    found: list[Any] = []
    for key in keys:
        meant: list[Any] = []
        errors = []
        for view in views:
            try:
                parsed = view.form.key.parse(key)
            except ConfigurationError as error:
                errors.append(error)
            else:
                meant += [] if parsed in meant else [parsed]
        if not meant:
            raise errors[0]
        found += meant
    return found
