"""A command in a terminal of its own: what is on its screen, and what became of the terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from select import select
from time import monotonic

import pyte

PATIENCE = 60.0
ALTERNATE_SCREEN = 1049 << 5
"""The mode in which a program has a screen to itself, as pyte numbers private modes."""


class Terminal:
    """The terminal and the command in it.

    Attributes:
        process: the command.
    """

    def __init__(self, arguments: list[str], columns: int, lines: int, environment: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._set_size(columns, lines)
        self._before = termios.tcgetattr(slave)
        self._slave = slave
        command = [sys.executable, "-c", "from millpond.cli import main; main()", *arguments]
        kept = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**kept, "TERM": "xterm-256color", **environment},
            preexec_fn=_with_a_terminal,
        )

    @property
    def lines(self) -> list[str]:
        """Return what is on the screen."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """The same in one text."""
        return "\n".join(self.lines)

    @property
    def has_a_screen_to_itself(self) -> bool:
        """Return whether the command has taken the whole screen and not given it back."""
        return ALTERNATE_SCREEN in self._screen.mode

    @property
    def is_as_it_was(self) -> bool:
        """Return whether the terminal is as the command has found it."""
        settings = termios.tcgetattr(self._slave)
        return not self.has_a_screen_to_itself and not self._screen.cursor.hidden and settings == self._before

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size; the system tells the command."""
        self._screen.resize(lines, columns)
        self._set_size(columns, lines)

    def press(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._master, keys)

    def wait_for(self, *wanted: str) -> None:
        """Wait until all of it is on the screen."""
        assert self._wait(lambda: all(text in self.text for text in wanted)), self.text

    def ends(self) -> int:
        """Wait for the command, and return how it has ended."""
        assert self._wait(lambda: self.process.poll() is not None), self.text
        self._take(0)
        return self.process.returncode

    def close(self) -> None:
        """End the command if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._slave)
        os.close(self._master)

    def _wait(self, done: Callable[[], bool]) -> bool:
        until = monotonic() + PATIENCE
        while not done():
            if monotonic() > until:
                return False
            self._take(0.05)
        return True

    def _take(self, seconds: float) -> None:
        """Bring what the command has written to the screen."""
        while select([self._master], [], [], seconds)[0]:
            self._stream.feed(os.read(self._master, 1 << 16))
            seconds = 0

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@contextmanager
def terminal(*arguments: str, columns: int = 120, lines: int = 50, **environment: str) -> Iterator[Terminal]:
    """A ``millpond`` command in a terminal."""
    opened = Terminal(list(arguments), columns, lines, environment)
    try:
        yield opened
    finally:
        opened.close()


def _with_a_terminal() -> None:
    """Begin a session of its own, so that Ctrl-C in its terminal reaches it alone."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
