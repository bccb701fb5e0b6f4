"""Fuzzes readers, guided by coverage: ``python -m tests.fuzz.fuzzer --seconds 600 [NAME ...]``.

Rule of this module: readers are fuzzed in another process, by Atheris, that is libFuzzer, so the end of that process, a
hang and a lack of memory are findings, too. Only Millpond's own code guides it; Arrow and MessagePack are native, and
are fuzzed blindly. A finding is shown with a line for ``tests/fuzz/found.py``, and the other readers go on.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

from tests.fuzz.reader import Reader
from tests.fuzz.readers import all_readers

ROOT: Final = Path(__file__).resolve().parents[2]
_LIMITS: Final = ("-timeout=10", "-rss_limit_mb=2048", "-max_len=4096", "-verbosity=0")
_SHOWN: Final = 40
_NOISE: Final = ("INFO:", "WARNING:", "#", "Base64", "MS:", "artifact_prefix")


def main(arguments: Sequence[str]) -> int:
    """Fuzz the readers of these names, or all, for so many seconds. Returns how many have failed."""
    readers = all_readers()
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.fuzzer")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of readers, all if there are none: {list(readers)}")
    parser.add_argument("--seconds", type=int, default=60, help="for all readers together")
    chosen = parser.parse_args(arguments)
    left = {name: readers[name] for name in chosen.names or readers}
    count, end = len(left), monotonic() + chosen.seconds
    while left and (seconds := int(end - monotonic())) > 0:
        failed = _failed(left, seconds)
        if failed is None:
            break
        left.pop(failed, None)
    print(f"{len(left)} of {count} readers have withstood {chosen.seconds} s")
    return count - len(left)


def _failed(readers: Mapping[str, Reader], seconds: int) -> str | None:
    """Fuzz readers until one of them fails; its name."""
    with TemporaryDirectory(prefix="millpond-fuzz-") as directory:
        corpus = Path(directory, "corpus")
        corpus.mkdir()
        for number, reader in enumerate(readers.values()):
            for place, seed in enumerate(reader.seeds):
                (corpus / f"{number}-{place}").write_bytes(bytes([number]) + seed)
        limits = (*_LIMITS, f"-max_total_time={seconds}", f"-artifact_prefix={directory}/found-")
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.fuzz_some", *readers, "--", *limits, str(corpus)],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": directory},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if line and not line.startswith(_NOISE)]
        if not done.returncode:
            print(*lines[-1:])
            return None
        print(f"The fuzzer has ended with {done.returncode}", *lines[-_SHOWN:], sep="\n")
        return _show(list(readers), Path(directory))


def _show(names: Sequence[str], directory: Path) -> str:
    """Show the input that was found; the name of its reader."""
    for path in directory.glob("found-*"):
        number, found = path.read_bytes()[:1], path.read_bytes()[1:]
        name = names[number[0] % len(names)] if number else names[0]
        print(f"    ({name!r}, {found!r}),", flush=True)
        return name
    raise SystemExit("the fuzzer itself has failed")


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
