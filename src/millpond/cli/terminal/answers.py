"""``--json``: one spelling and one meaning for all commands that do not measure.

Rule of this module: the answer goes to the standard output, an object of JSON on each line, and nothing else goes
there; an error is an object on the standard error. ``millpond bench`` has an option of the same name that takes a file,
in ``millpond.cli.bench.options``.
"""

from collections.abc import Iterable, Mapping
from json import dumps
from typing import Annotated, Any, Protocol

import typer

_wanted = False
"""True if the running command was asked for JSON."""


def _note(json: bool) -> bool:
    global _wanted
    _wanted = json
    return json


AsJson = Annotated[
    bool, typer.Option("--json", callback=_note, help="print JSON, an object on each line, and nothing else")
]


def expect_text() -> None:
    """Begin with a command that is not known yet."""
    _note(False)


def wants_json() -> bool:
    """Return whether the caller of the command reads JSON, also for errors."""
    return _wanted


class Answer(Protocol):
    """The answer of a command, for readers and for programs."""

    def lines(self) -> Iterable[str]:
        """Return the answer as text."""

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as an object of JSON."""


def say(answer: Answer, json: bool) -> None:
    """Print an answer."""
    if json:
        say_object(answer.to_dict())
        return
    for line in answer.lines():
        typer.echo(line)


def say_object(found: Mapping[str, Any]) -> None:
    """Print an object of JSON on a line."""
    typer.echo(dumps(found, ensure_ascii=False))
