"""The part of the suite about ``write`` in one process."""

from collections.abc import Mapping, Sequence

from millpond.stores.backend.contract import Backend
from millpond.stores.testing.comparison import check_same
from millpond.stores.testing.sentences import CALLERS, DELETE_NOTHING, SEEN
from millpond.stores.testing.suite import Suite


class WriteSuite(Suite):
    """``write``."""

    @SEEN
    def test_get_and_scan_show_a_write_at_once(self, backend: Backend) -> None:
        for number in range(20):
            backend.write({b"a": b"%d" % number, b"b%d" % number: b"", b"b%d" % (number - 1): None})
            assert backend.get(b"a") == b"%d" % number
            assert list(backend.scan()) == [(b"a", b"%d" % number), (b"b%d" % number, b"")]
            assert next(backend.scan(reverse=True)) == (b"b%d" % number, b"")

    @DELETE_NOTHING
    def test_deleting_a_key_that_does_not_exist_is_no_error(self, backend: Backend) -> None:
        backend.write({b"b": None})
        backend.write({b"a": b"1", b"b": None, b"c": None})
        backend.write({b"a": None})
        backend.write({b"a": None})
        assert list(backend.scan()) == []

    @CALLERS
    def test_what_becomes_of_the_mapping_after_a_write_is_the_callers_business(self, backend: Backend) -> None:
        changes: dict[bytes, bytes | None] = {b"a": b"1", b"b": None}
        backend.write(changes)
        assert changes == {b"a": b"1", b"b": None}
        changes |= {b"a": b"2", b"b": b"3", b"c": b"4"}
        assert backend.get(b"a") == b"1"
        assert list(backend.scan()) == [(b"a", b"1")]
        changes.clear()
        backend.flush()
        assert list(backend.scan()) == [(b"a", b"1")]

    @SEEN
    def test_a_write_without_changes_changes_nothing(self, backend: Backend) -> None:
        backend.write({b"a": b"1"})
        backend.write({})
        assert list(backend.scan()) == [(b"a", b"1")]

    @SEEN
    def test_many_entries_in_one_write_and_in_many(self, backend: Backend) -> None:
        wanted = {b"%d" % (number * 7919 % 20_000): b"%d" % number for number in range(20_000)}
        backend.write(wanted)
        check_same(backend.scan(), sorted(wanted.items()))
        for number in range(0, 20_000, 100):
            backend.write({b"%d" % number: None, b"%d" % (number + 1): b"again"})
            wanted.pop(b"%d" % number)
            wanted[b"%d" % (number + 1)] = b"again"
        check_same(backend.scan(), sorted(wanted.items()))

    @SEEN
    def test_the_same_rows_written_over_and_over_stay_right(self, backend: Backend) -> None:
        for number in range(200):
            backend.write({b"%03d" % row: b"%d" % number * 50 for row in range(50)})
        check_same(backend.scan(), ((b"%03d" % row, b"199" * 50) for row in range(50)))

    @SEEN
    def test_what_was_read_is_read_anew_after_a_large_write(self, backend: Backend) -> None:
        """Show no values from a cache that large writes, or deletions of large ranges, pass by."""
        keys = [b"m%05d" % (row * 293) for row in range(200)]
        wanted: dict[bytes, bytes] = {}
        for number, size in enumerate((1, 1_500, 6_000, 70_000)):
            changes: dict[bytes, bytes | None] = {b"m%05d" % row: b"%d" % number for row in range(size)}
            changes |= {key: None if place % 3 == number else b"%d" % number for place, key in enumerate(keys)}
            backend.write(changes)
            wanted |= {key: value or b"" for key, value in changes.items()}
            wanted = {key: value for key, value in wanted.items() if changes.get(key, b"") is not None}
            self._read_all_ways(backend, keys, wanted)
        backend.delete_range(keys[20], keys[180])
        wanted = {key: value for key, value in wanted.items() if not keys[20] <= key < keys[180]}
        self._read_all_ways(backend, keys, wanted)
        backend.write({key: bytes(20_000) for key in keys})
        self._read_all_ways(backend, keys, wanted | dict.fromkeys(keys, bytes(20_000)))

    def _read_all_ways(self, backend: Backend, keys: Sequence[bytes], wanted: Mapping[bytes, bytes]) -> None:
        """Check that each of ``keys`` is shown as wanted, however it is read."""
        values = [wanted.get(key) for key in keys]
        last = backend.last
        check_same(map(backend.get, keys), values)
        check_same(backend.get_many(keys), values)
        for key, value in zip(keys, values, strict=True):
            assert last(key, key + b"\0") == (None if value is None else (key, value))
        check_same(backend.scan(), sorted(wanted.items()))
