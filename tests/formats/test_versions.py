"""Format versions: numbers never move, names follow from them, unknown ones are refused by number."""

from pathlib import Path

import pytest

from millpond.errors import FormatError
from millpond.stores.formats import FormatVersion, parse_directory_name, unknown_versions


def test_the_numbers_never_move() -> None:
    assert {version.name: int(version) for version in FormatVersion} == {"PLAIN": 1, "TIMESTAMPED": 2}


@pytest.mark.parametrize("version", FormatVersion)
def test_a_directory_name_tells_store_and_version(version: FormatVersion) -> None:
    assert parse_directory_name(version.directory_name("counts")) == ("counts", version)


def test_the_names_are_those_of_kip_258() -> None:
    assert FormatVersion.PLAIN.directory_name("counts") == "counts"
    assert FormatVersion.TIMESTAMPED.directory_name("counts") == "counts-v2"


@pytest.mark.parametrize("number", [0, 3, -1, 99])
def test_an_unknown_number_is_refused_by_number(number: int) -> None:
    with pytest.raises(FormatError, match=f"version {number} is unknown.*1, 2"):
        FormatVersion.of_number(number)


@pytest.mark.parametrize("name", ["counts-v1", "counts-v3", "counts-v0"])
def test_a_directory_name_with_another_number_is_refused(name: str) -> None:
    with pytest.raises(FormatError, match=f"version {name[-1]}"):
        parse_directory_name(name)


def test_directories_of_unknown_versions_are_found(tmp_path: Path) -> None:
    for name in ("counts", "counts-v2", "counts-v9", "counts-v9-other", "sums-v9"):
        (tmp_path / name).mkdir()
    assert [path.name for path in unknown_versions(tmp_path, "counts")] == ["counts-v9"]
    assert unknown_versions(tmp_path / "absent", "counts") == []
