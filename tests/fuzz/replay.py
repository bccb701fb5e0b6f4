"""Reads what was found before, and seeds with something missing or changed: ``python -m tests.fuzz.replay``.

Rule of this module: it prints a line for each reader that does not withstand it, and ``done`` at the end.
"""

from collections.abc import Iterator
from typing import Final

from tests.fuzz.found import FOUND
from tests.fuzz.reader import Reader
from tests.fuzz.readers import all_readers
from tests.fuzz.watched import watched

_PLACES: Final = 60
"""In how many places a seed is cut off, and in how many it is changed."""


def main() -> None:
    """Read it all."""
    for name, reader in all_readers().items():
        read = watched(reader)
        found = [data for of, data in FOUND if of == name]
        try:
            for data in (*found, *_changed(reader)):
                if not read(data) and data in found:
                    print(f"({name!r}, {data!r}) is not refused", flush=True)
        except BaseException as error:
            print(f"({name!r}, {data!r}): {error!r}"[:1000], flush=True)
    print("done")


def _changed(reader: Reader) -> Iterator[bytes]:
    for seed in reader.seeds:
        yield seed
        for place in range(0, len(seed), len(seed) // _PLACES + 1):
            yield seed[:place]
            yield seed[:place] + bytes([seed[place] ^ 0xFF]) + seed[place + 1 :]


if __name__ == "__main__":
    main()
