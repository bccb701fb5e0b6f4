"""Fuzzes readers in this process: ``python -m tests.fuzz.fuzz_some NAME ... --`` and libFuzzer's own arguments.

The first byte of an input says whose it is.
"""

import sys

import atheris

with atheris.instrument_imports(include=["millpond"]):
    from tests.fuzz.readers import all_readers
    from tests.fuzz.watched import watched


def main() -> None:
    """Fuzz the readers that the command line names until libFuzzer ends the process."""
    end = sys.argv.index("--")
    readers = all_readers()
    reads = [watched(readers[name]) for name in sys.argv[1:end]]

    def read(data: bytes) -> None:
        if data:
            reads[data[0] % len(reads)](data[1:])

    atheris.Setup([sys.argv[0], *sys.argv[end + 1 :]], read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
