"""Names that become directories: plain ones only, whatever they are made of."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, StoreError
from millpond.stores.backend.memory import MemorySupplier
from millpond.stores.specs.directory import LONGEST_NAME, check_plain_name, delete_local_copy, plain_name


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


def stored(directory: Path) -> Path:
    """Return the directory of a store, with files."""
    copy = directory / "counts"
    copy.mkdir()
    for name in ("data", "lock"):
        (copy / name).touch()
    return copy


class Vanishing(MemorySupplier):
    """Somebody else deletes the directory as soon as what is outside of it is gone."""

    def destroy(self, directory: Path) -> None:
        shutil.rmtree(directory)


def test_a_copy_that_vanishes_before_it_is_deleted_is_no_error(tmp_path: Path) -> None:
    copy = stored(tmp_path)
    delete_local_copy(Vanishing(), copy)
    assert not copy.exists()


def test_a_copy_that_somebody_else_deletes_at_the_same_time_is_gone_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = stored(tmp_path)
    unlink = os.unlink

    def first_somebody_else(path: Any, **options: Any) -> None:
        monkeypatch.setattr(os, "unlink", unlink)
        unlink(path, **options)
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", first_somebody_else)
    delete_local_copy(MemorySupplier(), copy)
    assert not copy.exists()


def test_a_copy_that_cannot_be_deleted_is_an_error(tmp_path: Path) -> None:
    copy = tmp_path / "link"
    copy.symlink_to(stored(tmp_path))
    with pytest.raises(StoreError, match=r"link is a symbolic link, which is not followed; delete it, it is none"):
        delete_local_copy(MemorySupplier(), copy)
