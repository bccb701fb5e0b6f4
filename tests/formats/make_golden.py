"""Writes the golden files that are missing: ``python -m tests.formats.make_golden``.

A file that is there is never written again: later releases must open it as it is.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.formats.scenarios import SCENARIOS, open_on, pipe, write


def main() -> None:
    for scenario in SCENARIOS:
        if scenario.file.exists():
            continue
        with TemporaryDirectory() as directory:
            driver, filled = open_on(scenario, {}, "memory", Path(directory))
            with driver:
                pipe(driver, scenario.before)
                write(scenario.file, filled.rows())
        print(f"wrote {scenario.file.name}")


if __name__ == "__main__":
    main()
