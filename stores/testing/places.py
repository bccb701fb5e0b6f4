"""The part of the suite about the place of a store: any path, an empty directory, and nothing beside it."""

from pathlib import Path
from typing import Final

from millpond.stores.testing.sentences import ANY_PATH, NEW_IS_EMPTY, THE_STORE
from millpond.stores.testing.suite import Suite

_NAMES: Final = (
    *("with blanks in it", " ", "50%", "%20", "%2F", "a%00b", "a#b", "#", "a?mode=ro", "?", "a&b;c", "a+b", "a=b,c"),
    *(
        "käse",
        "ka\u0308se",
        "水車",
        "\U0001f33e",
        "it's",
        'a"b',
        "a\\b",
        "[a]",
        "*",
        "{a}",
        "$HOME",
        "~",
        "-a",
        ":memory:",
    ),
    *("file:a", "http:", "a.b", ".a"),
)
"""Names that become others, or none, if a path is taken for a URL, a pattern, an option or a command."""


class PlaceSuite(Suite):
    """Paths and directories."""

    def test_a_directory_may_have_any_characters_in_its_path(self, tmp_path: Path) -> None:
        place = tmp_path / "places"
        for name in _NAMES:
            for _ in range(2):
                with ANY_PATH, self.supplier().open(place / name / name) as backend:
                    before = list(backend.scan())
                    backend.write({b"name": name.encode()})
                    backend.flush()
            with ANY_PATH:
                assert before == ([(b"name", name.encode())] if self.supplier().persistent else []), f"in {name!r}"
        if self.supplier().persistent:
            with ANY_PATH:
                assert sorted(path.name for path in place.iterdir()) == sorted(_NAMES)

    @NEW_IS_EMPTY
    def test_an_empty_directory_that_is_there_becomes_a_store(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        for opening in range(2):
            with self.supplier().open(directory) as backend:
                assert list(backend.scan()) == ([(b"a", b"1")] if opening and self.supplier().persistent else [])
                backend.write({b"a": b"1"})

    @THE_STORE
    def test_nothing_is_beside_a_directory_while_it_is_open_and_afterwards(self, directory: Path) -> None:
        above = directory.parent
        above.mkdir()
        with self.open(directory) as backend:
            backend.write({b"a": b"1"})
            backend.flush()
            assert [path for path in above.iterdir() if path != directory] == [], "files are beside an open directory"
        assert [path for path in above.iterdir() if path != directory] == [], "files are left beside the directory"

    @THE_STORE
    def test_directories_of_the_same_name_in_different_places_are_two_stores(self, tmp_path: Path) -> None:
        with self.open(tmp_path / "0" / "store") as first, self.open(tmp_path / "1" / "store") as second:
            first.write({b"a": b"first"})
            second.write({b"a": b"second"})
            assert (first.get(b"a"), second.get(b"a")) == (b"first", b"second")
