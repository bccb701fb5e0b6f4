"""``--json``: one spelling and one meaning for all commands that do not measure.

Rule of this module: the answer goes to the standard output, an object of JSON on each line, and nothing else goes
there. ``millpond bench`` has an option of the same name that takes a file, in ``bench_options``.
"""

from collections.abc import Iterable, Mapping
from json import dumps
from typing import Annotated, Any, Protocol

import typer

AsJson = Annotated[bool, typer.Option("--json", help="print JSON, an object on each line, and nothing else")]


class Answer(Protocol):
    """What a command has to say, for readers and for programs."""

    def lines(self) -> Iterable[str]:
        """The answer as text."""

    def to_dict(self) -> dict[str, Any]:
        """The answer as an object of JSON."""


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
