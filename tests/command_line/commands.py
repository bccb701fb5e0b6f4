"""All commands of the command line, as its parser has them."""

from collections.abc import Iterator
from typing import Any, Final

import typer

from millpond.cli import app


def _walked(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield a command and those below it; a group that only leads to others is none."""
    below = getattr(command, "commands", {})
    if not below or command.invoke_without_command:
        yield name, command
    for part, inner in below.items():
        yield from _walked(inner, f"{name} {part}".strip())


ROOT: Final[Any] = typer.main.get_command(app)
COMMANDS: Final[dict[str, Any]] = dict(_walked(ROOT, ""))
"""By what is typed after ``millpond``."""

ANSWERING: Final = [
    name for name, command in COMMANDS.items() if any("--json" in one.opts and one.is_flag for one in command.params)
]
"""Those whose ``--json`` prints an answer; that of a command that measures takes a file."""
