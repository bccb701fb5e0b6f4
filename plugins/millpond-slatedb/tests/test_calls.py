"""Calls of coroutines: in a thread whose loop runs, several at once, too late, and one after another that was late."""

import asyncio
import threading
from typing import Any

import pytest
from millpond_slatedb.calls import Calls, TimedOut


class Engine:
    """Calls that end when a test says so, as SlateDB's do from a thread of its own."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self._waiting: dict[str, tuple[Any, Any]] = {}

    async def call(self, name: str) -> str:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting[name] = loop, future
        answer = await future
        self.done.append(name)
        return f"{name}: {answer}"

    async def fail(self) -> None:
        raise LookupError("no such call")

    def answer(self, name: str, seconds: float = 0.0) -> None:
        """Answer a call from another thread, once it has been made."""

        def later() -> None:
            pause.wait(seconds)
            while name not in self._waiting:
                pause.wait(0.001)
            loop, future = self._waiting.pop(name)
            loop.call_soon_threadsafe(future.set_result, 7)

        pause = threading.Event()
        threading.Thread(target=later, daemon=True).start()

    def answer_newest_first(self, count: int) -> None:
        """Answer so many of the calls that have been made, the newest first, from another thread."""

        def later() -> None:
            for _ in range(count):
                while not self._waiting:
                    threading.Event().wait(0.001)
                _, (loop, future) = self._waiting.popitem()
                loop.call_soon_threadsafe(future.set_result, 7)

        threading.Thread(target=later, daemon=True).start()


def test_a_call_is_answered_in_a_thread_whose_loop_runs() -> None:
    async def within() -> tuple[str, bool]:
        engine = Engine()
        engine.answer("a")
        before = asyncio.get_running_loop()
        return Calls(60).ask(engine.call("a")), asyncio.get_running_loop() is before

    assert asyncio.run(within()) == ("a: 7", True)


def test_many_calls_are_under_way_at_once_and_answered_in_their_order() -> None:
    engine, names = Engine(), [str(number) for number in range(200)]
    engine.answer_newest_first(len(names))
    assert Calls(60).ask_all([engine.call(name) for name in names]) == [f"{name}: 7" for name in names]


def test_what_a_call_raises_is_raised_and_the_next_one_is_made() -> None:
    engine, calls = Engine(), Calls(60)
    for way in (calls.ask, calls.change):
        with pytest.raises(LookupError, match="no such call"):
            way(engine.fail())
    engine.answer("a")
    assert calls.change(engine.call("a")) == "a: 7"


def test_a_change_that_was_late_ends_before_the_next_call_begins() -> None:
    engine, calls = Engine(), Calls(0.05)
    with pytest.raises(TimedOut):
        calls.change(engine.call("first"))
    with pytest.raises(TimedOut):
        calls.ask(engine.call("second"))
    assert engine.done == []
    engine.answer("first")
    engine.answer("third")
    for _ in range(200):
        try:
            assert calls.change(engine.call("third")) == "third: 7"
            break
        except TimedOut:
            continue
    assert engine.done == ["first", "third"]


def test_a_question_that_was_late_is_forgotten() -> None:
    engine, calls = Engine(), Calls(0.05)
    with pytest.raises(TimedOut):
        calls.ask(engine.call("first"))
    engine.answer("second")
    assert Calls(60).ask(engine.call("second")) == "second: 7"
    assert engine.done == ["second"]
