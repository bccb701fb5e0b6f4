"""SlateDB's coroutines, called from a thread that has no event loop, or has one that runs.

Rule of this module: it knows no rows. A coroutine of SlateDB asks the running loop for a future, and a thread of
SlateDB's has that loop set it. The loop here does no more than that: it runs what it is handed until one call is done.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_TOGETHER: Final = 64
"""The number of calls that are under way at once."""


class TimedOut(Exception):
    """A call has not ended in time."""


class _Promise(Future[Any]):
    """A promise that a coroutine waits for; once it is kept, its call can go on."""

    def __init__(self, kept: Callable[[], object]) -> None:
        super().__init__()
        self._tell = kept

    def set_result(self, result: Any) -> None:
        super().set_result(result)
        self._tell()

    def __await__(self) -> Generator[None, None, Any]:
        while not self.done():
            yield
        return self.result()


class _Loop:
    """The part of an event loop that SlateDB's coroutines use.

    Attributes:
        call: the call that goes on now.
    """

    def __init__(self) -> None:
        self._due: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]] = SimpleQueue()
        self.call: _Call[Any] | None = None

    def create_future(self) -> Any:
        assert self.call is not None
        return _Promise(self.call.go_on)

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> None:
        self._due.put((callback, args))

    def run_next(self, seconds: float) -> None:
        """Run the next callback, with which its call goes on.

        Raises:
            TimedOut: none came in so many seconds.
        """
        try:
            callback, args = self._due.get(timeout=max(0.0, seconds))
        except Empty:
            raise TimedOut from None
        callback(*args)


@contextmanager
def _running(loop: _Loop) -> Iterator[None]:
    """Make ``loop`` the running one in this thread within, instead of the user's."""
    events: Any = asyncio
    before = events._get_running_loop()
    events._set_running_loop(loop)
    try:
        yield
    finally:
        events._set_running_loop(before)


class _Call(Generic[T]):
    """A coroutine that is under way.

    Attributes:
        has_ended: whether it has an answer, or has raised.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], loop: _Loop) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._result: T | None = None
        self._error: BaseException | None = None
        self.has_ended = False

    def go_on(self) -> None:
        """Let the call go on as far as it can."""
        if self.has_ended:
            return
        self._loop.call = self
        try:
            self._coroutine.send(None)
        except StopIteration as end:
            self.has_ended, self._result = True, end.value
        except BaseException as error:
            self.has_ended, self._error = True, error

    def result(self) -> T:
        """Return the call's answer, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def abandon(self) -> None:
        """Abandon the call; SlateDB ends it."""
        self.has_ended = True
        self._coroutine.close()


class Calls:
    """The calls of one store, by one thread at a time, each of at most ``timeout`` seconds."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._loop = _Loop()
        self._unsettled: _Call[Any] | None = None

    def ask(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the answer of a call that changes nothing.

        Raises:
            TimedOut: there is no answer in time.
        """
        (answer,) = self.ask_all((coroutine,))
        return answer

    def ask_all(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Return the answers of calls that change nothing, many of which are under way at the same time.

        Raises:
            TimedOut: an answer is missing after the time.
        """
        calls = [_Call(coroutine, self._loop) for coroutine in coroutines]
        try:
            self.settle()
            for start in range(0, len(calls), _TOGETHER):
                self._wait(calls[start : start + _TOGETHER])
            return [call.result() for call in calls]
        finally:
            for call in calls:
                call.abandon()

    def change(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the answer of a call that changes something. A call that timed out ends before the next begins.

        Raises:
            TimedOut: there is no answer in time.
        """
        call = _Call(coroutine, self._loop)
        try:
            self.settle()
        except BaseException:
            call.abandon()
            raise
        self._unsettled = call
        self._wait((call,))
        self._unsettled = None
        return call.result()

    def settle(self) -> None:
        """Wait until the last change has ended, whether or not it was done.

        Raises:
            TimedOut: it has not ended in time.
        """
        if self._unsettled is not None:
            self._wait((self._unsettled,))
            self._unsettled = None

    def _wait(self, calls: Sequence[_Call[Any]]) -> None:
        """Let calls go on until all have ended."""
        end = time.monotonic() + self._timeout
        with _running(self._loop):
            for call in calls:
                call.go_on()
            for call in calls:
                while not call.has_ended:
                    self._loop.run_next(end - time.monotonic())
