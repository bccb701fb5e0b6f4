"""Format versions: numbers never move, names follow from them, and unknown ones are found."""

from pathlib import Path

import pytest

from millpond.stores.specs.formats import FormatVersion, unknown_versions


def test_the_numbers_never_move() -> None:
    assert {version.name: int(version) for version in FormatVersion} == {
        "PLAIN": 1,
        "TIMESTAMPED": 2,
        "LATEST_APART": 3,
        "CHECKSUMMED": 4,
        "CHECKSUMMED_TIMESTAMPED": 5,
        "CHECKSUMMED_LATEST_APART": 6,
    }


def test_the_names_are_those_of_kip_258() -> None:
    assert FormatVersion.PLAIN.directory_name("counts") == "counts"
    assert FormatVersion.TIMESTAMPED.directory_name("counts") == "counts-v2"
    assert FormatVersion.LATEST_APART.directory_name("counts") == "counts-v3"
    assert FormatVersion.CHECKSUMMED.directory_name("counts") == "counts-v4"


@pytest.mark.parametrize("version", FormatVersion, ids=lambda version: str(version.name))
def test_each_version_has_one_with_checksums_and_one_without(version: FormatVersion) -> None:
    assert version.checksums is (version is not version.content)
    assert version.with_checksums().checksums
    assert version.with_checksums().content is version.content
    assert not version.content.checksums


def test_directories_of_unknown_versions_are_found(tmp_path: Path) -> None:
    for name in ("counts", "counts-v2", "counts-v9", "counts-v9-other", "sums-v9"):
        (tmp_path / name).mkdir()
    assert [path.name for path in unknown_versions(tmp_path, "counts")] == ["counts-v9"]
    assert unknown_versions(tmp_path / "absent", "counts") == []
