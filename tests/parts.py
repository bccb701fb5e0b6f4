"""The tests that ``make test`` runs, and those that it leaves to ``make test-rest``; ``.ci/run`` runs both.

``make test`` runs the tests that need no Spark, and those on Spark that are marked ``first``, one for each thing that
only Spark can show. Of a test that takes more than a second, with all its runs together, it runs a sixth of the runs,
or none if there is only one. ``first`` keeps all runs, and ``rest`` none. Whoever names paths or ``-k`` gets all runs
of what was named.

``slow_tests.txt`` has the tests that take more than a second, as ``python -m tests.parts FIRST.xml REST.xml`` writes it
from what ``make test ARGS=--junitxml=FIRST.xml``, and ``make test-rest`` in the same way, have recorded.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

from tests.drawing import share

RECORD: Final = Path(__file__).with_name("slow_tests.txt")
SLOW: Final = 1.0
"""More seconds than a test may take that runs as a whole in ``make test``."""
PARTS: Final = ("first", "rest")


def slow_tests() -> dict[str, float]:
    """Return the seconds of the slow tests, by file and name."""
    lines = [line.split() for line in RECORD.read_text().splitlines()]
    return {name: float(seconds) for seconds, name in lines}


def left_out(items: Iterable[pytest.Item], part: str) -> set[str]:
    """Return the identities of the tests that are not of a part.

    Args:
        items: All tests of both parts.
        part: One of ``PARTS``.
    """
    slow = slow_tests()
    runs: defaultdict[str, list[str]] = defaultdict(list)
    first, rest = set(), set()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if item.get_closest_marker("rest") is not None:
            rest.add(item.nodeid)
        elif item.get_closest_marker("first") is not None:
            first.add(item.nodeid)
        elif item.get_closest_marker("spark") is not None:
            rest.add(item.nodeid)
        elif name in slow:
            runs[name].append(item.nodeid)
        else:
            first.add(item.nodeid)
    for of_one in runs.values():
        taken = share(of_one) if len(of_one) > 1 else []
        first.update(taken)
        rest.update(set(of_one).difference(taken))
    return rest if part == "first" else first


def recorded(junit: Path) -> dict[str, float]:
    """Return the seconds of all runs of a recorded run of tests, by the names that pytest gives them.

    Args:
        junit: What ``pytest --junitxml`` has written.
    """
    seconds = {}
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        module, *classes = _split(case.get("classname", ""))
        seconds["::".join([module, *classes, case.get("name", "")])] = float(case.get("time", 0))
    return seconds


def _split(classname: str) -> list[str]:
    """Split ``tests.room.test_module.TestClass`` into a path and the names of classes."""
    names = classname.split(".")
    until = next((at for at, name in enumerate(names) if name.startswith("test_")), len(names) - 1) + 1
    return ["/".join(names[:until]) + ".py", *names[until:]]


def main() -> None:
    """Write the slow tests of recorded runs."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for junit in sys.argv[1:]:
        for name, took in recorded(Path(junit)).items():
            seconds[name.partition("[")[0]] += took
    slow = {name: took for name, took in seconds.items() if took > SLOW and not name.startswith("tests/spark/")}
    RECORD.write_text("".join(f"{took:.1f} {name}\n" for name, took in sorted(slow.items())))


if __name__ == "__main__":
    main()
