"""The messages of Spark's processes, kept off the terminal.

Rule of this module: a process keeps the standard error that it is started with, so only what starts in here is quiet.
That is Spark's JVM, which hands its own on to all Python workers.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO


@contextmanager
def stderr_to(target: IO[bytes]) -> Iterator[None]:
    """Processes that start meanwhile write their standard error to ``target`` for as long as they live."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        os.dup2(target.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
