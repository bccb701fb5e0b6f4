"""Mutants change what they say, and only where a test should notice."""

import ast
import csv
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from tests.mutation.mutants import ROOMS, sites

HERE = Path(__file__).parent

SOURCE = dedent(
    '''
    """A module."""

    LIMIT = 3


    class Box:
        """A box."""

        def __repr__(self) -> str:
            return str(1 + 2)

        def put(self, low: int, high: int = 7) -> bool:
            """Put."""
            if low < 5 and self.free:
                raise ValueError(f"{low + 1} is too low")
            self.total += 1
            self.keep(low, high)
            return not low
    '''
)
CHANGES = {
    "and, or": ["low < 5 or self.free"],
    "boundary": ["low <= 5"],
    "comparison": ["low >= 5"],
    "constant": ["6", "4", "2", "0"],
    "dropped assignment": ["pass"],
    "dropped call": ["pass"],
    "returned nothing": ["None"],
    "sign": ["low"],
}


def test_what_a_test_should_notice_is_changed_and_nothing_else() -> None:
    found: dict[str, list[str]] = {}
    for number in range(len(sites(ast.parse(SOURCE)))):
        site = sites(ast.parse(SOURCE))[number]
        found.setdefault(site.kind, []).append(ast.unparse(site.plant()))
        assert site.function.startswith("Box.put:")
    assert {kind: set(changes) for kind, changes in found.items() if kind in CHANGES} == {
        kind: set(changes) for kind, changes in CHANGES.items()
    }


@pytest.mark.parametrize("number", range(len(sites(ast.parse(SOURCE)))))
def test_a_mutant_is_a_program(number: int) -> None:
    tree = ast.parse(SOURCE)
    sites(tree)[number].plant()
    changed = ast.unparse(ast.fix_missing_locations(tree))
    compile(changed, "mutant", "exec")
    assert changed != ast.unparse(ast.parse(SOURCE))


@pytest.mark.parametrize("results", sorted(HERE.glob("seed-*.tsv")), ids=lambda results: results.stem)
def test_each_mutant_that_no_test_kills_has_its_reason(results: Path) -> None:
    """The reasons are told in the page beside the results, which counts the mutants of each room."""
    page = (HERE / "README.md").read_text()
    with results.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert all(row["test"] for row in rows if row["outcome"] == "killed")
    assert all(row["reason"] for row in rows if row["outcome"] == "gone")
    assert all(f"**{row['reason']}**" in page for row in rows if row["outcome"] == "survived")
    for room in ROOMS:
        outcomes = Counter(row["outcome"] for row in rows if row["room"] == room)
        counts = (outcomes[outcome] for outcome in ("killed", "gone", "survived"))
        line = " | ".join(map(str, (results.stem, room, outcomes.total(), *counts)))
        assert f"| {line} |" in page
