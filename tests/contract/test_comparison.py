"""The kit's report on two large collections that differ."""

import pytest

from millpond.stores.testing.comparison import check_same

LARGE = b"x" * 2**20


@pytest.mark.parametrize("items", [[], [None], [(b"a", LARGE)], list(range(100_000))])
def test_what_is_the_same_passes(items: list[object]) -> None:
    check_same(iter(items), items)


def test_the_first_difference_is_named_by_its_place() -> None:
    expected = [(b"%06d" % number, b"") for number in range(100_000)]
    with pytest.raises(AssertionError) as raised:
        check_same(((key, b"1") for key, _ in expected), expected)
    assert str(raised.value) == "number 0, counted from 0, is (b'000000', b'1'), and should be (b'000000', b'')"


@pytest.mark.parametrize(
    ("found", "expected", "told"),
    [
        ([1, 2], [1], "number 1, counted from 0, is 2, and should be missing"),
        ([1], [1, None], "number 1, counted from 0, is missing, and should be None"),
        ([1, 3, 2], [1, 2, 3], "number 1, counted from 0, is 3, and should be 2"),
    ],
)
def test_what_is_missing_or_too_much_is_a_difference(found: list[object], expected: list[object], told: str) -> None:
    with pytest.raises(AssertionError) as raised:
        check_same(found, expected)
    assert str(raised.value) == told


def test_large_values_are_cut_to_a_line() -> None:
    with pytest.raises(AssertionError) as raised:
        check_same([(b"key", LARGE)], [(b"key", LARGE + b"y")])
    assert len(str(raised.value)) < 250
    assert "b'key'" in str(raised.value)
