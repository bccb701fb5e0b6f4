"""Calls of the system that one process announces to another, which lets each of them go on.

Linux has this from 5.5 on: filters of ``seccomp`` with a listener. Nothing is patched, so calls from C are seen like
calls from Python, in all threads. Rule of this module: the system's numbers and layouts live here.
"""

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from select import POLLHUP, POLLIN, poll
from struct import Struct
from typing import Final, NamedTuple


class Machine(NamedTuple):
    """A kind of processor: its number, the number of ``seccomp``, and the calls that are announced."""

    audit: int
    seccomp: int
    calls: dict[int, str]


_X86: Final = {
    **{1: "write", 18: "pwrite64", 20: "writev", 296: "pwritev", 328: "pwritev2", 40: "sendfile"},
    **{326: "copy_file_range", 77: "ftruncate", 285: "fallocate", 76: "truncate"},
    **{82: "rename", 264: "renameat", 316: "renameat2", 87: "unlink", 263: "unlinkat", 86: "link", 265: "linkat"},
    **{26: "msync", 74: "fsync", 75: "fdatasync", 162: "sync", 306: "syncfs"},
}
_ARM: Final = {
    **{64: "write", 68: "pwrite64", 66: "writev", 70: "pwritev", 287: "pwritev2", 71: "sendfile"},
    **{285: "copy_file_range", 46: "ftruncate", 47: "fallocate", 45: "truncate"},
    **{38: "renameat", 276: "renameat2", 35: "unlinkat", 37: "linkat"},
    **{227: "msync", 82: "fsync", 83: "fdatasync", 81: "sync", 267: "syncfs"},
}
_MACHINES: Final = {"x86_64": Machine(0xC000003E, 317, _X86), "aarch64": Machine(0xC00000B7, 277, _ARM)}

WRITES: Final = frozenset(
    ("write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "copy_file_range", "ftruncate", "fallocate")
)
"""Calls that change the file of one of their descriptors."""
SYNCS: Final = frozenset(("msync", "fsync", "fdatasync", "sync", "syncfs"))
"""Calls that bring something to the disk."""

_INSTRUCTION: Final = Struct("HBBI")
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_CALL, _MACHINE = 0, 4
"""The places at which a filter finds the number of the call, and the number of the machine."""
_ALLOW, _ANNOUNCE = 0x7FFF0000, 0x7FC00000
_SET_FILTER, _WITH_LISTENER, _NO_NEW_PRIVILEGES = 1, 1 << 3, 38

_ANNOUNCED: Final = Struct("QIIiIQ6Q")
"""Its number, the thread, flags; the call's number, the machine, the caller's address; the call's six arguments."""
_ANSWER: Final = Struct("QqiI")
_RECEIVE, _SEND, _GO_ON = 0xC0502100, 0xC0182101, 1


class NotAnnouncedError(Exception):
    """This system announces no calls, for the reason that the message gives."""


class Announced(NamedTuple):
    """A call that waits until it may go on."""

    number: int
    thread: int
    name: str
    arguments: tuple[int, ...]

    @property
    def descriptor(self) -> int:
        """The descriptor of the file that it changes or syncs."""
        return self.arguments[2 if self.name == "copy_file_range" else 0]

    def path(self) -> Path | None:
        """Return the file that it changes or syncs; None if no descriptor or address names one, or it has gone."""
        with suppress(OSError):
            if self.name == "msync":
                return self._mapped(self.arguments[0])
            if self.name in WRITES | SYNCS - {"sync"}:
                return Path(f"/proc/{self.thread}/fd/{self.descriptor}").readlink()
        return None

    def syncs_what_it_writes(self) -> bool:
        """Return whether it writes by a descriptor that was opened to sync all writes."""
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{self.thread}/fdinfo/{self.descriptor}").read_text().splitlines()
            flags = next(line for line in lines if line.startswith("flags:"))
            return bool(int(flags.split()[1], 8) & os.O_DSYNC)
        return False

    def _mapped(self, address: int) -> Path | None:
        for line in Path(f"/proc/{self.thread}/maps").read_text().splitlines():
            bounds, *rest = line.split(maxsplit=5)
            low, high = (int(bound, 16) for bound in bounds.split("-"))
            if low <= address < high and len(rest) == 5:
                return Path(rest[4])
        return None


@dataclass(frozen=True)
class Listener:
    """The listener that returns each call that a process announces; the call goes on when the next one is asked for."""

    descriptor: int

    def __iter__(self) -> Iterator[Announced]:
        waiting = poll()
        waiting.register(self.descriptor, POLLIN)
        while not waiting.poll()[0][1] & POLLHUP:
            if (call := self._receive()) is None:
                continue
            yield call
            self.let_go_on(call)

    def let_go_on(self, call: Announced) -> None:
        """Let a call go on before the next one is asked for."""
        with suppress(OSError):  # it goes on already, or the caller was killed meanwhile
            ioctl(self.descriptor, _SEND, bytearray(_ANSWER.pack(call.number, 0, 0, _GO_ON)))

    def _receive(self) -> Announced | None:
        buffer = bytearray(_ANNOUNCED.size)
        try:
            ioctl(self.descriptor, _RECEIVE, buffer)
        except OSError:  # the caller was killed meanwhile
            return None
        number, thread, _, call, _, _, *arguments = _ANNOUNCED.unpack(buffer)
        return Announced(number, thread, _MACHINES[platform.machine()].calls[call], tuple(arguments))


def announce_calls() -> int:
    """Announce the calls of this thread, and of those that it begins, from now on; return the listener's descriptor.

    Each of these calls waits until the listener lets it go on, so another process has to have the descriptor.

    Raises:
        NotAnnouncedError: the system does not offer it.
    """
    machine = _MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None:
        raise NotAnnouncedError(f"{platform.system()} on {platform.machine()} announces no calls")
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    code = ctypes.create_string_buffer(_filter(machine))
    program = _Program(len(code) // _INSTRUCTION.size, ctypes.cast(code, ctypes.c_void_p))
    descriptor: int = library.syscall(machine.seccomp, _SET_FILTER, _WITH_LISTENER, ctypes.byref(program))
    if descriptor < 0:
        reason = errno.errorcode.get(ctypes.get_errno(), "an error")
        raise NotAnnouncedError(f"{platform.system()} {platform.release()} announces no calls ({reason})")
    return descriptor


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _filter(machine: Machine) -> bytes:
    """Return a filter that announces the calls of ``machine`` and allows all others."""
    calls = list(machine.calls)
    announce = 4 + len(calls)
    code = [(_LOAD, 0, 0, _MACHINE), (_IF_EQUAL, 0, announce - 3, machine.audit), (_LOAD, 0, 0, _CALL)]
    code += [(_IF_EQUAL, announce - 4 - place, 0, call) for place, call in enumerate(calls)]
    code += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ANNOUNCE)]
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in code)
