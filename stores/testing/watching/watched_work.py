"""Work in a process that is watched: a watcher sees each of its calls of the system before it is done.

Rule of this module: it knows neither backends nor the watcher's purpose.
"""

import os
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from socket import AF_UNIX, SOCK_SEQPACKET, recv_fds, send_fds, socket, socketpair
from typing import Final, NoReturn, TypeAlias

from millpond.stores.testing.watching.system_calls import Announced, Listener, NotAnnouncedError, announce_calls

Mark: TypeAlias = Callable[[str], None]
"""A function for the work to tell the watcher its progress; when it returns, the watcher has taken note."""

_LONGEST: Final = 50_000
"""The most bytes of a mark."""
_FAILED: Final = "failed: "


class WorkFailedError(Exception):
    """The work has raised; the message is its traceback."""


class Watcher(ABC):
    """A watcher of the work, which waits while it looks."""

    @abstractmethod
    def called(self, call: Announced) -> None:
        """Look at a call that is not done yet."""

    @abstractmethod
    def marked(self, text: str) -> None:
        """Note that the work has come to a mark."""


def watch(work: Callable[[Mark], None], watcher: Watcher) -> None:
    """Do ``work`` in a fork of this process, which must have one thread, and show it to ``watcher``.

    Raises:
        NotAnnouncedError: the system does not show it.
        WorkFailedError: the work has raised.
    """
    ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
    bell = os.open(os.devnull, os.O_WRONLY)
    if (child := os.fork()) == 0:
        ours.close()
        _do(work, theirs, bell)
    theirs.close()
    with ours:
        message, descriptors, *_ = recv_fds(ours, _LONGEST, 1)
        try:
            if not descriptors:
                raise NotAnnouncedError(message.decode())
            _show(Listener(descriptors[0]), ours, bell, watcher)
        finally:
            for descriptor in (bell, *descriptors):
                os.close(descriptor)
            os.waitpid(child, 0)


def _show(listener: Listener, marks: socket, bell: int, watcher: Watcher) -> None:
    failed = None
    for call in listener:
        if (call.name, call.descriptor) != ("write", bell):
            watcher.called(call)
            continue
        text = marks.recv(_LONGEST).decode()
        if text.startswith(_FAILED):
            failed = text.removeprefix(_FAILED)
        else:
            watcher.marked(text)
    if failed is not None:
        raise WorkFailedError(failed)


def _do(work: Callable[[Mark], None], marks: socket, bell: int) -> NoReturn:
    """Do the work, ring the ``bell`` for each mark and wait until it is heard; called in the fork."""

    def mark(text: str) -> None:
        marks.send(text.encode()[-_LONGEST:])
        os.write(bell, b"\n")

    try:
        try:
            listener = announce_calls()
        except NotAnnouncedError as refusal:
            marks.send(str(refusal).encode())
            os._exit(0)
        send_fds(marks, [b"\n"], [listener])
        os.close(listener)
        work(mark)
    except BaseException:
        mark(_FAILED + traceback.format_exc())
    finally:
        os._exit(0)
