"""The end of a command by a signal: SIGTERM ends it as Ctrl-C does, so that all that it has begun is cleaned up.

Rule of this module: it knows signals, and no command.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def in_order() -> Iterator[None]:
    """Let SIGTERM end the process within as Ctrl-C does, with exit code 143: all that is open is closed first.

    A second SIGTERM is ignored, so that it does not interrupt that.
    """

    def end(number: int, _: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
