"""The kit on a real server, and what only a server can do to its client."""

import pickle
import shutil
from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest
from millpond_redis import RedisSupplier
from redis_servers import RedisServer, Wire, free_port

from millpond.errors import (
    BackendError,
    BackendInUseError,
    BackendUnavailableError,
    ConfigurationError,
    CorruptStoreError,
    StoreFullError,
)
from millpond.stores.backend import BackendSupplier
from millpond.stores.registry import supplier, try_out
from millpond.stores.testing import BackendSuite, Feature, StoreSuite

MANY = 25_000
"""More changes than one call to the server carries."""

INFINITE = '{"store": "00000000-0000-0000-0000-000000000000", "flushed": 1e400}'


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory with a short path."""
    with TemporaryDirectory(prefix="redis-") as place:
        yield Path(place)


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[RedisServer]:
    (place / "shared").mkdir()
    with RedisServer(place / "shared") as server:
        yield server


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    """A directory with a short path for a server of one test."""
    with TemporaryDirectory(prefix="redis-") as fresh:
        yield Path(fresh)


class OnAServer:
    """Tests on the server that the module has."""

    server: ClassVar[RedisServer]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def on_a_server(cls, server: RedisServer) -> None:
        cls.server = server

    def supplier(self) -> BackendSupplier:
        return RedisSupplier(self.server.url)


class TestRedis(OnAServer, BackendSuite):
    examples = 15
    opt_outs: ClassVar = {
        Feature.FILES: "a directory has only the name of a store that is on a server",
        Feature.DEFAULTS: "a server at the standard port is not everywhere",
    }

    def outside(self) -> Collection[object]:
        return self.server.keys()

    def unreachable(self) -> AbstractContextManager[object]:
        return self.server.away()


class TestStores(OnAServer, StoreSuite):
    examples = 5


def test_a_name_with_a_url_in_it_is_a_server(server: RedisServer) -> None:
    assert supplier(f"redis://?url={server.url}&timeout=2.5") == RedisSupplier(server.url, 2.5)
    try_out(f"redis://?url={server.url}")


@pytest.mark.parametrize(
    "url",
    [
        *("localhost", "http://localhost", "redis://", "redis://host?password=hunter2", "", "unix://"),
        *("redis://host/first", "redis://host/-1", "redis://host/0/1", "redis://u:hunter2@host:port/0"),
        *("redis://host:99999", "redis://host:0", "redis://u:hunter2@[::1/0", "redis://u:hun/ter2@host"),
        *(None, 7, b"redis://:hunter2@host", ["redis://:hunter2@host"]),
    ],
)
def test_a_url_that_is_none_of_redis_is_refused(url: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'url' of the backend 'redis'.*must be redis://") as refused:
        RedisSupplier(url)
    assert "hunter2" not in str(refused.value)
    assert "hun/" not in str(refused.value)


@pytest.mark.parametrize("timeout", ["0", "-1", "inf", "nan", "soon", "1e300", "86401"])
def test_a_timeout_that_is_none_is_refused(timeout: str) -> None:
    with pytest.raises(ConfigurationError, match=r"'timeout' of the backend 'redis'.*must be a number of seconds"):
        supplier(f"redis://?timeout={timeout}")


def test_no_message_shows_the_password(fresh: Path, tmp_path: Path) -> None:
    with RedisServer(fresh, password="hunter2") as server:
        right, wrong = RedisSupplier(server.url), RedisSupplier(server.url.replace("hunter2", "hunter3"))
        with right.open(tmp_path / "store") as backend:
            backend.write({b"a": b"1"})
        with pytest.raises(BackendError, match="refuses the user or the password") as refused:
            wrong.open(tmp_path / "store")
        assert pickle.loads(pickle.dumps(right)) == right
    with pytest.raises(BackendUnavailableError) as away:
        right.open(tmp_path / "store")
    for shown in (repr(right), str(refused.value), str(away.value)):
        assert "***@" in shown
        assert "hunter" not in shown


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


def test_who_opened_it_first_is_refused_once_a_copy_of_the_directory_is_opened(
    server: RedisServer, tmp_path: Path
) -> None:
    """The lock is of one machine; what keeps two machines apart is the token on the server."""
    redis = RedisSupplier(server.url)
    with redis.open(tmp_path / "store") as first:
        first.write({b"a": b"1"})
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        with redis.open(tmp_path / "copy") as second:
            assert second.get(b"a") == b"1"
            scan = first.scan()
            for call in (lambda: first.get(b"a"), lambda: first.write({b"a": b"2"}), first.flush, lambda: next(scan)):
                with pytest.raises(BackendInUseError, match="has been opened elsewhere"):
                    call()
            second.write({b"b": b"2"})
            assert dict(second.scan()) == {b"a": b"1", b"b": b"2"}
    redis.destroy(tmp_path / "store")


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
            with pytest.raises(CorruptStoreError, match=r"restarted without them.*restore the store"):
                call()
        backend.close()
        with pytest.raises(CorruptStoreError, match="restore the store"):
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
            with pytest.raises(CorruptStoreError, match="restore the store"):
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


def test_a_server_that_refuses_calls_for_a_time_is_one_that_cannot_be_reached(fresh: Path, tmp_path: Path) -> None:
    with RedisServer(fresh) as server, RedisSupplier(server.url).open(tmp_path / "store") as backend:
        backend.write({b"a": b"1"})
        server.client().config_set("min-replicas-to-write", 1)
        with pytest.raises(BackendUnavailableError, match="refuses calls now: NOREPLICAS"):
            backend.write({b"a": b"2"})
        server.client().config_set("min-replicas-to-write", 0)
        server.client().config_set("busy-reply-threshold", 1)
        with ThreadPoolExecutor() as elsewhere:
            endless = elsewhere.submit(server.client().eval, "while true do end", 0)
            with pytest.raises(BackendUnavailableError, match="refuses calls now: BUSY"):
                deque(map(backend.get, repeat(b"a")), maxlen=0)
            server.client().script_kill()
            assert "SCRIPT KILL" in str(endless.exception())
        assert backend.get(b"a") == b"1"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"store": "x", "flushed": 1}', "[" * 100_000, INFINITE])
def test_a_damaged_name_of_a_store_says_so(server: RedisServer, tmp_path: Path, content: str) -> None:
    (tmp_path / "store.json").write_text(content)
    with pytest.raises(CorruptStoreError, match=r"store\.json is damaged"):
        RedisSupplier(server.url).open(tmp_path)
    RedisSupplier(server.url).destroy(tmp_path)


def test_a_server_that_keeps_its_rows_may_be_restarted_under_an_open_backend(fresh: Path, tmp_path: Path) -> None:
    server = RedisServer(fresh, "--appendonly", "yes", "--appendfsync", "always").start()
    with RedisSupplier(server.url).open(tmp_path / "store") as backend:
        backend.write({b"a": b"1"})
        for call in (lambda: backend.write({b"b": b"2"}), lambda: backend.get(b"a"), lambda: list(backend.scan())):
            server.kill()
            server.start()
            call()
        assert dict(backend.scan()) == {b"a": b"1", b"b": b"2"}
    server.kill()


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("count", [1, MANY])
def test_a_write_whose_connection_breaks_is_done_once(
    server: RedisServer, fresh: Path, tmp_path: Path, arrives: bool, times: int, count: int
) -> None:
    wire = Wire(server.url.removeprefix("unix://"), fresh)
    redis = RedisSupplier(wire.url, timeout=10)
    changes: dict[bytes, bytes | None] = {b"%05d" % number: b"" for number in range(count)}
    with redis.open(tmp_path / "store") as backend:
        backend.write({b"00000": b"old", b"gone": b""})
        wire.cut(arrives=arrives, times=times)
        try:
            backend.write({**changes, b"gone": None})
        except BackendUnavailableError:
            assert times == 2
            assert len(list(backend.scan())) in (2, count)
            backend.write({**changes, b"gone": None})
        assert [key for key, _ in backend.scan()] == sorted(changes)
        wire.cut(arrives=arrives)
        assert backend.get(b"00000") == b""
    with redis.open(tmp_path / "store") as backend:
        assert dict(backend.scan()) == changes
    redis.destroy(tmp_path / "store")
    wire.close()


def test_a_server_that_hangs_is_one_that_cannot_be_reached(fresh: Path, tmp_path: Path) -> None:
    with RedisServer(fresh) as server, RedisSupplier(server.url, timeout=0.5).open(tmp_path / "store") as backend:
        backend.write({b"a": b"1"})
        with server.hanging():
            with pytest.raises(BackendUnavailableError, match="cannot be reached now"):
                backend.get(b"a")
            with pytest.raises(BackendUnavailableError, match="cannot be reached now"):
                backend.write({b"a": b"2"})
        assert backend.get(b"a") in (b"1", b"2")
        backend.write({b"a": b"3"})
        assert list(backend.scan()) == [(b"a", b"3")]


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


def test_sizes_are_those_of_the_server(server: RedisServer, tmp_path: Path) -> None:
    redis = RedisSupplier(server.url)
    with redis.open(tmp_path / "store") as backend:
        backend.write({b"%d" % number: bytes(100) for number in range(MANY)})
        assert backend.entry_count() == MANY
        assert backend.size_on_disk() > 100 * MANY
    redis.destroy(tmp_path / "store")
