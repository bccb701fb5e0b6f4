"""How many cases a test draws: in ``make test`` a quarter of what it asks for, in ``make test-exhaustive`` all."""

import os
from typing import Final

ALL: Final = "MILLPOND_ALL_CASES"
"""The variable of the environment that asks for all."""
_LEAST: Final = 10


def tries(most: int) -> int:
    """So many, or a quarter of them but no fewer than ten, unless ``ALL`` is set."""
    return most if ALL in os.environ else min(most, max(_LEAST, most // 4))
