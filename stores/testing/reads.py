"""The part of the suite about keys, values and ``get``."""

from collections.abc import Sequence

import pytest

from millpond.stores.backend.contract import Backend
from millpond.stores.testing.comparison import check_same
from millpond.stores.testing.sentences import ANY_KEY, BYTES, EMPTY_VALUES, GET, KEY_ORDER
from millpond.stores.testing.suite import EDGE_KEYS, TEXT_KEYS, Suite


class ReadSuite(Suite):
    """Keys, values and ``get``."""

    @GET
    def test_get_gives_the_value_of_each_key_and_none_for_others(self, filled: Backend) -> None:
        assert [filled.get(key) for key in EDGE_KEYS] == [b"<" + key + b">" for key in EDGE_KEYS]
        assert [filled.get(key + b"x") for key in EDGE_KEYS] == [None] * len(EDGE_KEYS)

    @GET
    def test_get_gives_bytes_that_stay_as_they_are_after_later_writes(self, backend: Backend) -> None:
        backend.write({b"key": b"old" * 1000})
        old = backend.get(b"key")
        backend.write({b"key": b"new" * 1000})
        assert type(old) is bytes
        assert old == b"old" * 1000

    @BYTES
    def test_keys_and_values_come_out_as_bytes(self, backend: Backend) -> None:
        backend.write({b"a": b"1", b"b": b""})
        entries = [*backend.scan(), *backend.scan(reverse=True), backend.last(b"a", b"c")]
        found = [*(part for entry in entries if entry for part in entry), *backend.get_many([b"a", b"b"])]
        assert [part for part in found if type(part) is not bytes] == []

    @EMPTY_VALUES
    def test_an_empty_value_is_a_value(self, backend: Backend) -> None:
        backend.write({b"empty": b"", b"full": b"x"})
        assert backend.get(b"empty") == b""
        assert list(backend.scan()) == [(b"empty", b""), (b"full", b"x")]

    @GET
    def test_values_hold_every_byte_and_may_be_large(self, backend: Backend) -> None:
        values = {b"bytes": bytes(range(256)), b"zeros": bytes(5000), b"large": b"\xff\0" * 500_000}
        backend.write(values)
        check_same(map(backend.get, values), values.values())

    @KEY_ORDER
    def test_keys_are_in_the_order_of_unsigned_bytes(self, filled: Backend) -> None:
        assert [key for key, _ in filled.scan()] == EDGE_KEYS

    @ANY_KEY
    @pytest.mark.parametrize("around", [(b"", b""), (b"key", b""), (b"", b"key"), (b"a", b"z")])
    def test_each_of_the_256_bytes_makes_another_key(self, backend: Backend, around: tuple[bytes, bytes]) -> None:
        before, after = around
        _check_apart(backend, [before + bytes((byte,)) + after for byte in range(256)])

    @ANY_KEY
    def test_keys_that_are_one_as_text_or_as_a_number_are_apart(self, backend: Backend) -> None:
        _check_apart(backend, TEXT_KEYS)

    @ANY_KEY
    def test_keys_that_differ_after_a_long_common_prefix_are_apart(self, backend: Backend) -> None:
        limit = backend.max_key_size or 5_000
        for length in sorted({min(limit, length) - 2 for length in (34, 66, 130, 258, 514, 1026, 4098, limit)}):
            prefix = bytes(range(97, 123)) * (length // 26 + 1)
            ends = (b"", b"\0", b"\0\0", b"A", b"a", b"a ", b"aa", b"b", b"\x81", b"\xff", b"\xff\xff")
            _check_apart(backend, [prefix[:length] + end for end in ends])

    def test_keys_as_long_as_the_backend_says_it_takes(self, backend: Backend) -> None:
        longest = backend.max_key_size or 100_000
        keys = [bytes((fill,)) * longest for fill in (0, 97, 255)]
        with GET:
            backend.write(dict.fromkeys(keys, b"value"))
            assert [backend.get(key) for key in keys] == [b"value"] * 3
            check_same((key for key, _ in backend.scan(keys[0], keys[2])), keys[:2])
            check_same((key for key, _ in backend.scan(keys[0], keys[2], reverse=True)), [keys[1], keys[0]])


def _check_apart(backend: Backend, keys: Sequence[bytes]) -> None:
    """Check that each of ``keys``, which ascend, is found, changed, scanned and deleted without any other."""
    backend.write({key: b"<" + key + b">" for key in reversed(keys)})
    values = [b"<" + key + b">" for key in keys]
    check_same(map(backend.get, keys), values)
    check_same(backend.get_many(keys), values)
    check_same(backend.scan(keys[0]), zip(keys, values, strict=True))
    check_same((key for key, _ in backend.scan(keys[0], reverse=True)), reversed(keys))
    middle = len(keys) // 2
    check_same((key for key, _ in backend.scan(keys[middle], keys[-1])), keys[middle:-1])
    assert backend.last(keys[0], keys[middle]) == (keys[middle - 1], values[middle - 1])
    backend.write(dict.fromkeys(keys[::2]))
    check_same(backend.get_many(keys), (value if place % 2 else None for place, value in enumerate(values)))
    backend.delete_range(keys[0], keys[-1])
    check_same((key for key, _ in backend.scan()), keys[-1:] if len(keys) % 2 == 0 else ())
    backend.write({keys[-1]: None})
