"""Names that become directories: plain ones only, whatever they are made of."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import ConfigurationError
from millpond.stores.directory import LONGEST_NAME, check_plain_name, plain_name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\\b", "a\0b", "a\nb", " a", "a ", "\ud800", "x" * 300, "ä" * 101, 7]
)
def test_a_name_that_no_directory_should_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"application id .*directory gets it"):
        check_plain_name("application id", name)


@pytest.mark.parametrize("name", ["orders", "a.b", "...", "größe", "x" * LONGEST_NAME])
def test_other_names_are_taken(name: str) -> None:
    check_plain_name("application id", name)


@given(st.text(max_size=400).filter(bool))
def test_any_text_gets_a_name_within_its_directory(text: str) -> None:
    name = plain_name(text)
    check_plain_name("name", name)
    assert Path("/base", name).resolve().parent == Path("/base")


def test_different_texts_get_different_names() -> None:
    texts = ["counts", "..", ".", "a/b", "a%2Fb", "x" * 300, "x" * 301, "...", "größe"]
    assert len({plain_name(text) for text in texts}) == len(texts)
    assert plain_name("counts") == "counts"
