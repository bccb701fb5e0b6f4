"""A directory, which has the name of its store, and the server, database and owner of its files."""

import json
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest
import redis
from millpond_redis import RedisSupplier
from millpond_redis.address import Address
from millpond_redis.place import Place
from redis_servers import RedisServer, free_port

from millpond.errors import BackendError, BackendInUseError, CorruptStoreError
from millpond.stores.specs.directory import delete_local_copy

INFINITE = '{"store": "00000000-0000-0000-0000-000000000000", "server": "", "database": 0, "flushed": 1e400}'
TOO_MANY = INFINITE.replace("1e400", f"{10**30}")


@pytest.fixture
def databases(fresh: Path) -> Iterator[Sequence[RedisSupplier]]:
    """The databases of a server, one supplier for each of the first three."""
    port = free_port()
    with RedisServer(fresh, port=port):
        yield [RedisSupplier(f"redis://127.0.0.1:{port}/{number}") for number in range(3)]


def keys_in(supplier: RedisSupplier) -> Collection[object]:
    """Return the names of all keys of a database."""
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
    with pytest.raises(CorruptStoreError, match=r"they are in the database 0 of the server"):
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
    with pytest.raises(CorruptStoreError, match="does not have all rows any more"):
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
    with pytest.raises(CorruptStoreError, match="does not have all rows any more"):
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


def test_who_opened_it_first_is_refused_once_a_copy_of_the_directory_is_opened(
    server: RedisServer, tmp_path: Path
) -> None:
    """The lock is of one machine; the token on the server keeps two machines apart."""
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


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"store": "x", "flushed": 1}', "[" * 100_000, INFINITE, TOO_MANY])
def test_a_damaged_name_of_a_store_says_so(
    server: RedisServer, tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "store.json").write_text(content)
    with pytest.raises(CorruptStoreError, match=r"store\.json is damaged"):
        RedisSupplier(server.url).open(tmp_path)
    RedisSupplier(server.url).destroy(tmp_path)
    assert f"what the store of {tmp_path} has on a server stays there" in caplog.text


@pytest.mark.parametrize("name", ["lock", "store.json.new"])
def test_a_link_in_the_place_of_a_file_of_a_store_is_not_followed(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("somebody else's")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / name).symlink_to(outside)
    with pytest.raises(BackendError, match="a symbolic link, which is not followed"):
        Place(tmp_path / "store", Address.of("redis://127.0.0.1"))
    assert outside.read_text() == "somebody else's"
