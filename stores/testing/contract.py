"""The tie between a test and the sentence that it proves.

Rule of this module: a sentence is quoted as it stands in the docstring that promises it. A quotation that is not there
fails at import, so that contract and kit cannot drift apart; ``unproved`` lists the sentences that nothing quotes.
"""

import re
from contextlib import ContextDecorator
from inspect import getdoc
from types import TracebackType
from typing import ClassVar

_SENTENCE_END = re.compile(r"(?<=[.])\s+(?=[A-Z`])")


class ContractBroken(AssertionError):
    """A breach of the contract by a backend. The message begins with the sentence that it breaks."""


class says(ContextDecorator):
    """A mark of a test, or a part of one, as the proof of ``sentence`` in the docstring of ``source``.

    One quotation may serve any number of tests. A failure inside is raised again as ``ContractBroken`` with the
    sentence in front.
    """

    quoted: ClassVar[set[tuple[str, str]]] = set()
    """Every source and sentence that was quoted so far."""

    def __init__(self, source: object, sentence: str) -> None:
        self._where = _name(source)
        self.sentence = sentence
        if sentence not in sentences(source):
            raise LookupError(f"{self._where} does not say {sentence!r}, but: {sentences(source)}")
        self.quoted.add((self._where, sentence))

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, ContractBroken):
            reason = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            raise ContractBroken(f"{self._where} says: {self.sentence}\n{reason}") from error


def sentences(source: object) -> list[str]:
    """Return the sentences of ``source``'s own docstring, each on one line."""
    text = " ".join((getdoc(source) or "").split())
    return _SENTENCE_END.split(text) if text else []


def unproved(*sources: object) -> set[tuple[str, str]]:
    """Return the sentences of ``sources`` that no ``says`` has quoted."""
    promised = {(_name(source), sentence) for source in sources for sentence in sentences(source)}
    return promised - says.quoted


def _name(source: object) -> str:
    name: str = getattr(source, "__qualname__", repr(source))
    return name
