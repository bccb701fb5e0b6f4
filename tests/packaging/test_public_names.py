"""Stable names: the public names and their signatures are those on record."""

from difflib import unified_diff

from tests.packaging.public_names import SNAPSHOT, describe


def test_the_public_names_and_signatures_are_those_of_the_snapshot() -> None:
    before, now = SNAPSHOT.read_text().splitlines(), describe().splitlines()
    changes = "\n".join(unified_diff(before, now, "public_names.txt", "as it is", lineterm="", n=1))
    assert not changes, (
        f"the public names have changed:\n{changes}\n"
        "If this is meant, run `python tests/packaging/public_names.py` and say in CHANGELOG.md what users must change."
    )
