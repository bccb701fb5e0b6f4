"""Servers that lose rows, have no room for them, or would: nothing that was written is ever taken for absent."""

from collections import deque
from pathlib import Path

import pytest
from millpond_redis import RedisSupplier
from redis_servers import RedisServer, free_port

from millpond.errors import BackendUnavailableError, ConfigurationError, CorruptStoreError, StoreFullError


def test_what_would_lose_rows_without_saying_so_is_refused_with_the_reason(fresh: Path, tmp_path: Path) -> None:
    for number, (options, reason) in enumerate(
        (
            (("--replicaof", "127.0.0.1", str(free_port())), "is a replica"),
            (("--cluster-enabled", "yes", "--cluster-port", str(free_port())), "part of a cluster"),
            (("--maxmemory-policy", "allkeys-lru"), "maxmemory-policy is allkeys-lru"),
            (("--maxmemory-policy", "volatile-ttl"), "maxmemory-policy is volatile-ttl"),
        )
    ):
        place = fresh / str(number)
        place.mkdir()
        port = free_port() if "--cluster-enabled" in options else 0
        with RedisServer(place, *options, port=port) as server:
            with pytest.raises(ConfigurationError, match=f"is refused: .*{reason}"):
                RedisSupplier(server.url).open(tmp_path / str(number))
            assert server.keys() == []


def test_rows_that_a_server_has_lost_are_never_taken_for_absent(fresh: Path, tmp_path: Path) -> None:
    server = RedisServer(fresh).start()
    redis = RedisSupplier(server.url)
    backend, unflushed = redis.open(tmp_path / "store"), redis.open(tmp_path / "unflushed")
    backend.write({b"a": b"1"})
    backend.flush()
    server.kill()
    with pytest.raises(BackendUnavailableError):
        backend.get(b"a")
    with server:
        for call in (lambda: backend.get(b"a"), lambda: backend.write({b"a": b"2"}), lambda: list(backend.scan())):
            with pytest.raises(CorruptStoreError, match=r"restarted without them"):
                call()
        backend.close()
        with pytest.raises(CorruptStoreError, match="does not have all rows any more"):
            redis.open(tmp_path / "store")
        unflushed.close()
        with redis.open(tmp_path / "unflushed") as empty:
            assert list(empty.scan()) == []


def test_a_server_that_went_back_behind_a_flush_or_lost_single_keys_is_found_out(
    server: RedisServer, tmp_path: Path
) -> None:
    redis, client = RedisSupplier(server.url), server.client()
    for lose in ("state", "order", "rows"):
        with redis.open(tmp_path / lose) as backend:
            backend.write({b"a": b"1", b"b": b"2"})
        (key,) = [key for key in client.keys(f"*:{lose}") if client.exists(key)]
        client.delete(key)
        with pytest.raises(CorruptStoreError):
            redis.open(tmp_path / lose)
        redis.destroy(tmp_path / lose)
    with redis.open(tmp_path / "back") as backend:
        for number in range(3):
            backend.write({b"a": b"%d" % number})
    (key,) = client.keys("*:state")
    client.hset(key, "writes", 2)
    with pytest.raises(CorruptStoreError, match="has had 2 writes, but 3 were flushed"):
        redis.open(tmp_path / "back")
    redis.destroy(tmp_path / "back")


@pytest.mark.parametrize("lost", ["state", "order", "rows"])
def test_a_key_that_goes_while_the_store_is_open_is_found_out_by_the_next_call(
    server: RedisServer, tmp_path: Path, lost: str
) -> None:
    redis, client = RedisSupplier(server.url), server.client()
    with redis.open(tmp_path / "store") as backend:
        backend.write({b"a": b"1", b"b": b"2"})
        client.delete(*client.keys(f"*:{lost}"))
        for call in (
            lambda: backend.get(b"a"),
            lambda: backend.get_many([b"a"]),
            lambda: backend.last(b"a", b"z"),
            lambda: list(backend.scan()),
            lambda: backend.write({b"a": b"3"}),
            lambda: backend.delete_range(b"a", b"b"),
            backend.entry_count,
            backend.flush,
        ):
            with pytest.raises(CorruptStoreError, match="does not have all rows any more"):
                call()
    redis.destroy(tmp_path / "store")


def test_rows_that_a_server_evicts_after_all_are_never_taken_for_absent(fresh: Path, tmp_path: Path) -> None:
    with RedisServer(fresh, "--maxmemory", "8mb") as server, RedisSupplier(server.url).open(tmp_path / "s") as backend:
        backend.write({b"%03d" % number: bytes(10_000) for number in range(100)})
        server.client().config_set("maxmemory-policy", "allkeys-lru")
        writes = ({b"more-%03d" % number: bytes(10_000)} for number in range(1000))
        with pytest.raises(CorruptStoreError, match="evicted them"):
            deque(map(backend.write, writes), maxlen=0)
        with pytest.raises(CorruptStoreError, match="evicted them"):
            backend.get(b"001")


def test_something_else_under_the_name_of_a_key_is_damage(server: RedisServer, tmp_path: Path) -> None:
    redis, client = RedisSupplier(server.url), server.client()
    with redis.open(tmp_path / "store") as backend:
        backend.write({b"a": b"1"})
        (rows,) = client.keys("*:rows")
        client.set(rows, "something else")
        with pytest.raises(CorruptStoreError, match="something else has the name"):
            backend.get(b"a")
    with pytest.raises(CorruptStoreError, match="something else has the name"):
        redis.open(tmp_path / "store")
    redis.destroy(tmp_path / "store")


def test_a_server_without_room_says_so_and_keeps_whole_writes(fresh: Path, tmp_path: Path) -> None:
    with RedisServer(fresh, "--maxmemory", "8mb") as server, RedisSupplier(server.url).open(tmp_path / "s") as backend:
        writes = iter({b"%03d-%d" % (number, part): bytes(100_000) for part in range(2)} for number in range(100))
        with pytest.raises(StoreFullError, match="raise its maxmemory"):
            deque(map(backend.write, writes), maxlen=0)
        written = 99 - len(list(writes))
        assert len(list(backend.scan())) == 2 * written > 0
        backend.delete_range(b"0", b"9")
        server.client().config_set("maxmemory", "100mb")
        backend.write({b"a": b"1"})
        assert list(backend.scan()) == [(b"a", b"1")]
