"""Options as text."""

import pytest

from millpond.errors import ConfigurationError
from millpond.stores.options import parse_bool, parse_int, parse_options, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("7", 7), ("7B", 7), ("1kB", 1000), ("1KiB", 1024), (" 2 mib ", 2**21), ("0.5GB", 5 * 10**8)],
)
def test_sizes_have_decimal_and_binary_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "MiB", "1 2", "1k", "1PiB", "1e3"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a size such as"):
        parse_size(text)


def test_switches_have_words_for_on_and_off() -> None:
    assert [parse_bool(word) for word in ("true", "ON", "yes", "1")] == [True] * 4
    assert [parse_bool(word) for word in ("false", "Off", "no", "0")] == [False] * 4
    with pytest.raises(ValueError, match="true or false"):
        parse_bool("maybe")


def test_whole_numbers_may_have_a_sign() -> None:
    assert [parse_int("12"), parse_int("-1")] == [12, -1]
    with pytest.raises(ValueError, match="a whole number"):
        parse_int("1.5")


def test_an_unknown_option_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="has no option 'c'; its options are a, b"):
        parse_options("x", {"c": "1"}, {"b": parse_int, "a": parse_int})
    with pytest.raises(ConfigurationError, match="has no option 'c'; it has no options"):
        parse_options("x", {"c": "1"}, {})
