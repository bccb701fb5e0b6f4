"""The kit on a real server, and what only a server can do to its client."""

import json
import pickle
import re
import shutil
import socket
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest
import redis
from millpond_redis import RedisSupplier
from millpond_redis.server import translate_errors
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
from millpond.stores.directory import delete_local_copy
from millpond.stores.registry import supplier, try_out
from millpond.stores.testing import BackendSuite, Feature, StoreSuite

MANY = 25_000
"""More changes than one call to the server carries."""

INFINITE = '{"store": "00000000-0000-0000-0000-000000000000", "server": "", "database": 0, "flushed": 1e400}'


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
        *("redis://h1,h2", "redis://h1%2Ch2", "redis://u:hunter2@h1,h2", "redis://h o", "redis://h;o", "redis://h*"),
        *("redis://a..b", f"redis://{'a' * 64}", "redis://h\nost", "REDIS://host", "redis://host/٣"),
        *("unix://relative/path", "unix:///a%00b", f"unix:///{'a' * 107}"),
        *("redis://host:99999", "redis://host:0", "redis://u:hunter2@[::1/0", "redis://u:hun/ter2@host"),
        *(None, 7, b"redis://:hunter2@host", ["redis://:hunter2@host"]),
    ],
)
def test_a_url_that_is_none_of_redis_is_refused(url: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'url' of the backend 'redis'.*must be redis://") as refused:
        RedisSupplier(url)
    assert "hunter2" not in str(refused.value)
    assert "hun/" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["redis://10.0.0.1", "redis://[fe80::1%25lo]:1/3", "rediss://a_b.c-d.", "redis://hå", f"unix:///{'a' * 106}"]
)
def test_a_url_that_may_be_one_of_redis_is_taken(url: str) -> None:
    assert RedisSupplier(url).url == url


@pytest.mark.parametrize("timeout", ["0", "-1", "inf", "nan", "soon", "1e300", "86401", "1_0", "٣", ""])
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


def test_a_certificate_that_is_not_trusted_is_no_server_that_is_away(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, port = str(Path(__file__).with_name("localhost.pem")), free_port()
    keys = ("--tls-cert-file", certificate, "--tls-key-file", certificate, "--tls-ca-cert-file", certificate)
    tls = ("--tls-port", str(port), *keys, "--tls-auth-clients", "no")
    with RedisServer(fresh, *tls, password="hunter2"):
        by_name, by_number = (RedisSupplier(f"rediss://:hunter2@{host}:{port}") for host in ("localhost", "127.0.0.1"))
        refusals = [refusal_of(by_name, tmp_path)]
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        refusals.append(refusal_of(by_number, tmp_path))
        by_name.open(tmp_path).close()
        for refusal, reason in zip(refusals, ("self-signed certificate", "IP address mismatch"), strict=True):
            assert re.search(rf"certificate that is not trusted .*{reason}.*SSL_CERT_FILE", str(refusal))
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as plain:
        refusals.append(refusal_of(RedisSupplier(f"rediss://:hunter2@127.0.0.1:{plain}"), tmp_path))
    assert re.search(r"refuses TLS .*see that its port is one for that", str(refusals[-1]))
    for refusal in refusals:
        assert type(refusal) is BackendError
        assert "***@" in str(refusal)
        assert "hunter" not in str(refusal)


def refusal_of(supplier: BackendSupplier, directory: Path) -> BackendError:
    """What opening a store raises."""
    with pytest.raises(BackendError) as refused:
        supplier.open(directory)
    return refused.value


@contextmanager
def answering(text: bytes) -> Iterator[int]:
    """A server that gives everybody the same answer; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as thread:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(2**10)
                connection.sendall(text)

        answered = thread.submit(answer)
        yield listening.getsockname()[1]
        answered.result()


def test_a_socket_that_may_not_be_used_is_no_server_that_is_away(tmp_path: Path) -> None:
    error = redis.ConnectionError("Error 13 connecting to /socket. Permission denied.")
    error.__context__ = PermissionError(13, "Permission denied")
    told = translate_errors(tmp_path, "unix://:hunter2@/socket").translated(error)
    assert type(told) is BackendError
    assert re.search(r"may not be used by the user of this process .*Permission denied", str(told))


@pytest.fixture
def databases(fresh: Path) -> Iterator[Sequence[RedisSupplier]]:
    """The databases of a server, one supplier for each of the first three."""
    port = free_port()
    with RedisServer(fresh, port=port):
        yield [RedisSupplier(f"redis://127.0.0.1:{port}/{number}") for number in range(3)]


def keys_in(supplier: RedisSupplier) -> Collection[object]:
    """The names of all keys of a database."""
    with redis.Redis.from_url(supplier.url) as client:
        return list(client.keys("*"))


def test_what_a_store_has_in_another_database_is_deleted_with_its_directory(
    databases: Sequence[RedisSupplier], tmp_path: Path
) -> None:
    first, second, _ = databases
    for place in ("store", "other"):
        with first.open(tmp_path / place) as backend:
            backend.write({b"a": b"1"})
    delete_local_copy(second, tmp_path / "store")
    assert len(keys_in(first)) == 3
    assert keys_in(second) == []
    with first.open(tmp_path / "other") as backend:
        assert backend.get(b"a") == b"1"


@pytest.mark.parametrize("flushed", [False, True])
def test_a_store_that_is_given_another_database_begins_there_anew_and_leaves_nothing(
    databases: Sequence[RedisSupplier], tmp_path: Path, flushed: bool
) -> None:
    first, second, third = databases
    backend = first.open(tmp_path / "store")
    backend.write({b"a": b"1"})
    if flushed:
        backend.flush()
    backend._store._release()  # as if the process had died
    with pytest.raises(CorruptStoreError, match=r"they are in the database 0 of the server; .*restore the store"):
        second.open(tmp_path / "store")
    with first.open(tmp_path / "store") as again:
        assert again.get(b"a") == b"1"
    delete_local_copy(second, tmp_path / "store")
    with second.open(tmp_path / "store") as new:
        assert list(new.scan()) == []
        new.write({b"b": b"2"})
    assert [len(keys_in(each)) for each in databases] == [0, 3, 0]
    delete_local_copy(third, tmp_path / "store")
    assert [len(keys_in(each)) for each in databases] == [0, 0, 0]


def test_what_stays_on_another_server_is_told_by_name(
    databases: Sequence[RedisSupplier], server: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, elsewhere = tmp_path / "store", RedisSupplier(server.url)
    with databases[0].open(store) as backend:
        backend.write({b"a": b"1"})
    with pytest.raises(CorruptStoreError, match="restore the store"):
        elsewhere.open(store)
    elsewhere.destroy(store)
    name = json.loads((store / "store.json").read_text())["store"]
    assert f"{store} was on another server, 127.0.0.1:" in caplog.text
    assert (
        f"yours to delete: millpond:{name}:state, millpond:{name}:order, millpond:{name}:rows in database 0"
        in caplog.text
    )
    assert len(keys_in(databases[0])) == 3


def test_a_store_that_nobody_flushed_does_not_begin_on_two_servers(
    databases: Sequence[RedisSupplier], server: RedisServer, tmp_path: Path
) -> None:
    backend = databases[0].open(tmp_path)
    backend.write({b"a": b"1"})
    backend._store._release()  # as if the process had died
    with pytest.raises(CorruptStoreError, match="restore the store"):
        RedisSupplier(server.url).open(tmp_path)
    assert server.keys() == []


def test_a_server_may_have_several_names(fresh: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    with RedisServer(fresh, port=port, password="hunter2") as server:
        by_socket, by_port = RedisSupplier(server.url), RedisSupplier(f"redis://:hunter2@localhost:{port}")
        with by_socket.open(tmp_path) as backend:
            backend.write({b"a": b"1"})
        with by_port.open(tmp_path) as backend:
            assert backend.get(b"a") == b"1"
        record = (tmp_path / "store.json").read_text()
        assert json.loads(record)["server"] == f"localhost:{port}"
        assert "hunter2" not in record
        by_socket.destroy(tmp_path)
        assert server.keys() == []
        assert caplog.text == ""


@pytest.mark.parametrize("file", ["lock", "store.json", "store.json.new"])
def test_a_directory_in_the_place_of_a_file_says_what_to_look_for(
    server: RedisServer, tmp_path: Path, file: str
) -> None:
    (tmp_path / file).mkdir()
    with pytest.raises(
        BackendError, match=rf"{tmp_path}/{file} cannot be used \(Is a directory\); see that it is a file"
    ):
        RedisSupplier(server.url).open(tmp_path)
    RedisSupplier(server.url).destroy(tmp_path)


def test_a_file_in_the_place_of_a_directory_says_what_to_do(server: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("somebody's")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BackendError, match=rf"{place} .*a file has its name.*move the file away"):
            RedisSupplier(server.url).open(place)
        RedisSupplier(server.url).destroy(place)


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
def test_a_damaged_name_of_a_store_says_so(
    server: RedisServer, tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "store.json").write_text(content)
    with pytest.raises(CorruptStoreError, match=r"store\.json is damaged"):
        RedisSupplier(server.url).open(tmp_path)
    RedisSupplier(server.url).destroy(tmp_path)
    assert f"what the store of {tmp_path} has on a server stays there" in caplog.text


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
