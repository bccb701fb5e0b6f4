"""Another process, to show what one process cannot: kills, locks and sharing.

Rule of this module: the child imports nothing but its function's module, so that starting one is cheap. Run as a
program it reads its task from its standard input; ``Child`` is the parent's side.
"""

import pickle
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self


class Child:
    """A process that runs ``function(*arguments)``, which must be importable and picklable.

    The child reports with ``report`` and waits with ``wait_for_parent``; the parent reads reports with ``read`` and
    releases it with ``let_go_on``. Leaving the ``with`` block kills the child.
    """

    def __init__(self, function: Callable[..., None], *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from millpond.stores.testing.child import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        pickle.dump(sys.path, self._stdin)
        pickle.dump((function, arguments), self._stdin)
        self._stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def _stdin(self) -> Any:
        return self._process.stdin

    def read(self) -> str:
        """Return the child's next report; the empty string once it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().rstrip("\n")

    def read_rest(self) -> list[str]:
        """Return all reports until the child ends."""
        assert self._process.stdout is not None
        return self._process.stdout.read().decode().splitlines()

    def let_go_on(self) -> None:
        """Release the child from one ``wait_for_parent``."""
        self._stdin.write(b"\n")
        self._stdin.flush()

    def kill(self) -> None:
        """End the child as a power cut would end a process: at once, in the middle of anything."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        """Wait for the child's own end; return its exit status."""
        self._stdin.close()
        return self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def report(text: object) -> None:
    """Report a text to the parent; called in the child."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def wait_for_parent() -> None:
    """Wait until the parent lets this process go on; called in the child."""
    sys.stdin.buffer.readline()


def main() -> None:
    """Run the function that the parent has sent; called in the child."""
    sys.path[:] = pickle.load(sys.stdin.buffer)
    function, arguments = pickle.load(sys.stdin.buffer)
    function(*arguments)
