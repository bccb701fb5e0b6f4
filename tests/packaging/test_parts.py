"""The tests of ``make test``, and those of ``make test-rest``."""

from pathlib import Path
from typing import Any, cast

import pytest

from tests.parts import PARTS, left_out, slow_tests

ROOT = Path(__file__).resolve().parents[2]
SLOW = "tests/crash/test_soak.py::test_whatever_fails_the_output_is_that_of_an_undisturbed_run"
ALONE = "tests/fuzz/test_readers.py::test_what_was_found_and_damaged_seeds_give_data_or_an_error_of_millponds"


class Item:
    """As much of a test as tells its part."""

    def __init__(self, nodeid: str, *marks: str) -> None:
        self.nodeid = nodeid
        self.marks = marks

    def get_closest_marker(self, name: str) -> Any:
        return name if name in self.marks else None


def part(name: str, *items: Item) -> set[str]:
    return {item.nodeid for item in items} - left_out(cast("list[pytest.Item]", items), name)


def test_every_test_is_of_one_part() -> None:
    runs = [Item(f"{SLOW}[{number}]") for number in range(12)]
    items = [*runs, Item(ALONE), Item("quick"), Item("on Spark", "spark"), Item("chosen", "spark", "first")]
    items += [Item(f"{SLOW}[left]", "rest"), Item(f"{ALONE}[chosen]", "first")]
    first, rest = (part(name, *items) for name in PARTS)
    assert first | rest == {item.nodeid for item in items}
    assert not first & rest
    assert first >= {"quick", "chosen", f"{ALONE}[chosen]"}
    assert rest >= {ALONE, "on Spark", f"{SLOW}[left]"}
    assert len(first.intersection(item.nodeid for item in runs)) == 2


def test_the_slow_tests_are_tests() -> None:
    for name in slow_tests():
        path, *_, function = name.split("::")
        source = (ROOT / path).read_text()
        assert f"def {function}(" in source or "::Test" in name or function == "runTest", name
