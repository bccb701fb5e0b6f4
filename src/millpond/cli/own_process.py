"""Savings of a process that runs one command and ends.

Rule of this module: nothing changes for code that calls a command in a process of its own, as tests do.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

_is_ours = False


def begin() -> None:
    """Note that the process is the console script's, and nobody else's."""
    global _is_ours
    _is_ours = True


def do_without_pandas() -> None:
    """Make Arrow find no pandas, for the rest of the process.

    When Arrow first gets a Python value, it imports pandas, if that is installed, to see whether the value is one of
    its objects. For a short command this takes longer than all that it does. Call it only where no code of the user's
    runs.
    """
    if _is_ours:
        sys.meta_path.insert(0, _NoPandas())


class _NoPandas(MetaPathFinder):
    """An import finder for which pandas is not installed."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
