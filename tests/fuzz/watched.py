"""One reader under watch: what it may do with any bytes is to return, or to raise an error below ``MillpondError``."""

from collections.abc import Callable
from contextlib import suppress

from millpond.errors import MillpondError
from tests.fuzz.canary import nothing_executes
from tests.fuzz.reader import Reader


def watched(reader: Reader) -> Callable[[bytes], bool]:
    """Return a function that reads bytes under watch, and tells whether they are refused.

    The function raises ``Executed`` if anything is executed, and lets through whatever is not below ``MillpondError``.
    """
    for seed in reader.seeds:
        for data in (seed, seed[:-1], b"", b"\xff" * len(seed)):
            with suppress(Exception):  # imports what is imported at a first success, or at a first error
                reader.read(data)

    def read(data: bytes) -> bool:
        with nothing_executes():
            try:
                reader.read(data)
            except MillpondError:
                return True
        return False

    return read
