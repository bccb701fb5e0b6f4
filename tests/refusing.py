"""Calls that are refused, with what their messages advise: rows of tables that tests go through."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from millpond.errors import MillpondError


class Refused:
    """A call that is refused, and calls that are what its message advises.

    Args:
        words: of the message, which no other refusal has, with ends of lines where it has names and values;
            ``test_advice.py`` in ``packaging`` looks for them where refusals are raised.
        wrong: the call; it gets what the test makes for it.
        right: the calls that are advised.
    """

    def __init__(self, words: str, wrong: Callable[[Any], object], *right: Callable[[Any], object]) -> None:
        self.words = words
        self.wrong = wrong
        self.right = right

    def __repr__(self) -> str:
        return self.words.replace("\n", "...")

    def sentence(self, made: Callable[[], Any], error: type[MillpondError]) -> str:
        """Return what the wrong call is told, in one line, without addresses of objects."""
        with pytest.raises(error) as refused:
            self.wrong(made())
        return re.sub(r" at 0x[0-9a-f]+", "", str(refused.value).replace("\n", " "))

    def check(self, made: Callable[[], Any], error: type[MillpondError]) -> None:
        """Make the wrong call and then the right ones, each with something new."""
        with pytest.raises(error) as refused:
            self.wrong(made())
        rest = str(refused.value)
        for part in self.words.splitlines():
            assert part in rest, refused.value
            rest = rest.partition(part)[2]
        assert self.right
        for call in self.right:
            call(made())
