"""Verbs answer the same as DuckDB for keys and values of all types, as streams that die and are restarted."""

from itertools import product

import pytest

from tests.drawing import tries
from tests.metamorphic.random_verbs import Case, failure, random_case, report
from tests.metamorphic.typed_jobs import FAMILIES, Draft
from tests.metamorphic.typed_values import KEYS, VALUES

CASES = 480
"""In all of these each type of keys meets each type of values, and each family."""
PARTS = 8


def cases(part: int) -> list[Case]:
    return [random_case(number) for number in range(part, tries(CASES), PARTS)]


@pytest.mark.parametrize("part", range(PARTS))
def test_random_verbs_over_all_types_answer_what_duckdb_does(part: int) -> None:
    differing = [case for case in cases(part) if failure(case) is not None]
    assert not differing, "\n".join(map(report, differing[:3]))


def test_each_type_of_keys_meets_each_type_of_values_and_each_family() -> None:
    drafts = [(random_case(number).family, Draft(number)) for number in range(CASES)]
    met = {(draft.key.name, kind.name) for _, draft in drafts for kind in draft.kinds["a"]}
    assert len(KEYS) >= 16
    assert len(VALUES) >= 25
    assert met == {(key.name, value.name) for key, value in product(KEYS, VALUES)}
    assert {(family, draft.key.name) for family, draft in drafts} == {
        (family, key.name) for family, key in product(FAMILIES, KEYS)
    }
