"""The part of the suite about keys, values and ``get``."""

from millpond.stores.backend import Backend
from millpond.stores.testing.sentences import EMPTY_VALUES, GET, KEY_ORDER
from millpond.stores.testing.suite import EDGE_KEYS, Suite


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

    @EMPTY_VALUES
    def test_an_empty_value_is_a_value(self, backend: Backend) -> None:
        backend.write({b"empty": b"", b"full": b"x"})
        assert backend.get(b"empty") == b""
        assert list(backend.scan()) == [(b"empty", b""), (b"full", b"x")]

    @GET
    def test_values_hold_every_byte_and_may_be_large(self, backend: Backend) -> None:
        values = {b"bytes": bytes(range(256)), b"zeros": bytes(5000), b"large": b"\xff\0" * 500_000}
        backend.write(values)
        assert {key: backend.get(key) for key in values} == values

    @KEY_ORDER
    def test_keys_are_in_the_order_of_unsigned_bytes(self, filled: Backend) -> None:
        assert [key for key, _ in filled.scan()] == EDGE_KEYS

    def test_keys_as_long_as_the_backend_says_it_takes(self, backend: Backend) -> None:
        longest = backend.max_key_size or 100_000
        keys = [bytes((fill,)) * longest for fill in (0, 97, 255)]
        with GET:
            backend.write(dict.fromkeys(keys, b"value"))
            assert [backend.get(key) for key in keys] == [b"value"] * 3
            assert [key for key, _ in backend.scan(keys[0], keys[2])] == keys[:2]
            assert [key for key, _ in backend.scan(keys[0], keys[2], reverse=True)] == [keys[1], keys[0]]
