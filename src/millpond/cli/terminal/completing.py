"""The completion in the shell of more than commands and options: backends, and the stores of a query.

Rule of this module: a key that is pressed shows no error. A word that cannot be found out is not completed.
"""

from urllib.parse import urlsplit

import typer

from millpond.errors import MillpondError


def backend_names(incomplete: str) -> list[str]:
    """Return the backends that are installed."""
    from millpond.stores.backend.registry import backend_names as known

    return [name for name in known() if name.startswith(incomplete)]


def store_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the stores of the query whose checkpoint and state directory, on this machine, are on the line already."""
    checkpoint, state_dir = (context.params.get(name) for name in ("checkpoint", "state_dir"))
    if not checkpoint or not state_dir or not (_is_near(checkpoint) and _is_near(state_dir)):
        return []
    from millpond.adapters.inspect import StateInspector

    try:
        names = {view.name for view in StateInspector.at(checkpoint, state_dir).stores()}
    except (MillpondError, OSError):
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def store_kinds(incomplete: str) -> list[str]:
    """Return the kinds of stores that can be brought along from Kafka Streams."""
    from millpond.adapters.kafka_streams.kinds import KINDS

    return [kind.value for kind in KINDS if kind.value.startswith(incomplete)]


def _is_near(place: str) -> bool:
    return urlsplit(place).scheme in ("", "file")
