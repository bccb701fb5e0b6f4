"""Notices anything that a reader executes: unpickling, code, processes, libraries, modules, changes of files.

Rule of this module: it watches CPython's audit events, so what is hidden behind a library is seen, too. What a reader
needs once (modules that are imported lazily, say) it must have had before it is watched.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_EXECUTES: Final = (
    "code.__new__",
    "compile",
    "ctypes.",
    "exec",
    "import",
    "marshal.",
    "os.",
    "pickle.",
    "pty.",
    "shutil.",
    "socket.",
    "subprocess.",
    "urllib.",
)
"""How the names of the events begin that no reader causes."""
_LOOKS: Final = {"os.listdir", "os.scandir", "os.walk", "os.fwalk"}
_PARSED: Final = "<unknown>"
"""What ``ast.parse`` calls its text, by which a traceback finds what to underline; nothing of it is run."""
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Executed(BaseException):
    """A reader did what it must not do. No handler of ``Exception`` takes it for a refusal."""


_watching = False
_hooked: list[bool] = []
_seen: list[str] = []


def _notice(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching or (event == "compile" and arguments[1] == _PARSED):
        return
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES
    if writes or (event.startswith(_EXECUTES) and event not in _LOOKS):
        _seen.append(f"{event}{arguments!r}"[:200])


@contextmanager
def nothing_executes() -> Iterator[None]:
    """Watch what happens within.

    Raises:
        Executed: at the end, if anything was executed, even if it was caught within.
    """
    global _watching
    if not _hooked:
        sys.addaudithook(_notice)
        _hooked.append(True)
    _seen.clear()
    _watching = True
    try:
        yield
    finally:
        _watching = False
        if _seen:
            raise Executed("; ".join(_seen))
