"""The whole screen of a terminal: an overview that is looked at again and again, and fits whatever size it has.

Rule of this module: it knows the terminal and the clock, and nothing of what an overview says. However it ends, the
terminal is as it was.
"""

from dataclasses import dataclass
from time import monotonic, sleep
from typing import Final, NoReturn

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from millpond.adapters.monitor.query_monitor import QueryMonitor
from millpond.adapters.monitor.table import problem, tables
from millpond.errors import MillpondError

_LOOK_AT_SIZE: Final = 0.2
"""Seconds after which it is seen that the terminal has another size."""


@dataclass(frozen=True)
class Screenful:
    """The part of ``content`` that fits the screen; the last line says how many lines do not."""

    content: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self.content, options)
        hidden = len(lines) - options.size.height + 1
        if hidden > 1:
            more = Text(f"… {hidden} more lines in a taller terminal, or with --once", style="dim", no_wrap=True)
            lines = [*lines[:-hidden], *console.render_lines(more, options)]
        for line in lines:
            yield from line
            yield Segment.line()


def can_show(console: Console) -> bool:
    """Return whether there is a screen to be written again and again, and not a file, a pipe or a printer."""
    return console.is_interactive and console.file.isatty()


def show(watched: QueryMonitor, console: Console, pause: float) -> NoReturn:
    """Show a query until this process is interrupted; a checkpoint that is not there yet is waited for.

    Args:
        watched: the query.
        console: on a terminal.
        pause: seconds until it is looked at again.

    Raises:
        ConfigurationError: no file system is known for the checkpoint.
        DurabilityError: the checkpoint cannot be read.
        KeyboardInterrupt: by Ctrl-C.
    """
    if watched.exists():
        watched.look()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            seen, size = _seen(watched), console.size
            live.update(Screenful(seen), refresh=True)
            _wait(live, pause, size)


def _seen(watched: QueryMonitor) -> RenderableType:
    """Return the overview as tables, or the error that prevents it."""
    try:
        return tables(watched.look())
    except MillpondError as error:
        return problem(str(error))


def _wait(live: Live, pause: float, size: ConsoleDimensions) -> None:
    """Wait; if the terminal's size is no longer ``size``, fit what is shown to it."""
    until = monotonic() + pause
    while (left := until - monotonic()) > 0:
        sleep(min(left, _LOOK_AT_SIZE))
        if live.console.size != size:
            size = live.console.size
            live.refresh()
