"""The runs of which ``make test`` takes a part, and ``make test-exhaustive`` all: drawn cases, and those on backends.

A test draws its cases by ``tries``, or has a parameter ``seed``. What stands above the contract of stores does not tell
backends apart: there a test runs on memory, and of its runs with another seed, or on another backend, a sixth stays.
The names of the runs decide which ones, so they are the same everywhere. A test that kills or
fails something at its every step has their numbers from ``steps``.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import count
from typing import Any, Final

ALL: Final = "MILLPOND_ALL_CASES"
"""The variable of the environment that asks for all."""
ABOVE: Final = frozenset(("processors", "metamorphic", "pond", "evolution", "edit", "inspect", "golden"))
"""The folders of what stands above the contract of stores."""
_BACKENDS: Final = ("memory", "lmdb", "rocksdb")
_SHARE: Final = 6
_LEAST: Final = 10


def tries(most: int) -> int:
    """Return so many, or a sixth of them but no fewer than ten, unless ``ALL`` is set."""
    return most if ALL in os.environ else min(most, max(_LEAST, most // _SHARE))


def steps(backend: str) -> Iterator[int]:
    """Yield the numbers of the steps at which something happens to a backend: each third, or all if ``ALL`` is set.

    Each of the built-in backends begins with another one, so that together they come to about every step.
    """
    return count(1) if ALL in os.environ else count(1 + _BACKENDS.index(backend), len(_BACKENDS))


def is_drawn(folder: str, parameters: Mapping[str, Any]) -> bool:
    """Return whether a run of a test is one of those of which a part is enough.

    Args:
        folder: that of the test, below ``tests``.
        parameters: those of the run, by name; their first seed is 0.
    """
    persistent = folder in ABOVE and any(isinstance(one, str) and one in _BACKENDS[1:] for one in parameters.values())
    return persistent or bool(parameters.get("seed"))


def spared(runs: Iterable[str]) -> list[str]:
    """Return the drawn runs of a test that ``make test`` leaves to ``make test-exhaustive``: all but the share.

    Args:
        runs: their names.
    """
    names = list(runs)
    return [] if ALL in os.environ else sorted(set(names).difference(share(names)))


def share(runs: Iterable[str]) -> list[str]:
    """Return a sixth of a test's runs, at least one, which are the same everywhere.

    Args:
        runs: their names.
    """
    ordered = sorted(runs, key=lambda name: blake2b(name.encode()).digest())
    return ordered[: -(-len(ordered) // _SHARE)]
