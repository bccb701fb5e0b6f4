"""Faults between a client and a server: passwords, certificates, cut wires, and a server that is not there now."""

import pickle
import re
import socket
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path

import pytest
import redis
from millpond_redis import RedisSupplier
from millpond_redis.address import Address
from millpond_redis.server import translate_errors
from redis_servers import MANY, RedisServer, Wire, free_port

from millpond.errors import BackendError, BackendUnavailableError, ConfigurationError
from millpond.stores.backend import BackendSupplier

CERTIFICATE = str(Path(__file__).with_name("localhost.pem"))


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


@contextmanager
def tls_server(place: Path, *options: str) -> Iterator[int]:
    """A server with a certificate of its own, which is in the file ``CERTIFICATE``; its port for TLS."""
    port = free_port()
    keys = ("--tls-cert-file", CERTIFICATE, "--tls-key-file", CERTIFICATE, "--tls-ca-cert-file", CERTIFICATE)
    with RedisServer(place, "--tls-port", str(port), *keys, *options, password="hunter2"):
        yield port


def test_a_certificate_that_is_not_trusted_is_no_server_that_is_away(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tls_server(fresh, "--tls-auth-clients", "no") as port:
        by_name, by_number = (RedisSupplier(f"rediss://:hunter2@{host}:{port}") for host in ("localhost", "127.0.0.1"))
        untrusted = refusal_of(by_name, tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", CERTIFICATE)
        of_another = refusal_of(by_number, tmp_path)
        by_name.open(tmp_path).close()
    for refusal, reason in ((untrusted, "self-signed certificate"), (of_another, "IP address mismatch")):
        assert type(refusal) is BackendError
        assert re.search(rf"certificate that is not trusted .*{reason}.*SSL_CERT_FILE", str(refusal))


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_a_server_that_wants_a_certificate_of_its_clients_says_so_and_takes_one(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", CERTIFICATE)
    with tls_server(fresh, "--tls-protocols", protocol) as port:
        url = f"rediss://:hunter2@localhost:{port}"
        # Which of the two depends on whether the server's reason comes before the end of the connection does.
        asked = r"wants a certificate of its clients .*option 'certificate'|clients without a certificate"
        assert re.search(asked, str(refusal_of(RedisSupplier(url), tmp_path)))
        with pickle.loads(pickle.dumps(RedisSupplier(url, certificate=CERTIFICATE))).open(tmp_path) as backend:
            backend.write({b"a": b"1"})
            assert backend.get(b"a") == b"1"
        RedisSupplier(url, certificate=CERTIFICATE).destroy(tmp_path)


def test_a_certificate_that_is_none_is_no_fault_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    encrypted = Path(__file__).with_name("locked.pem")
    for file in (tmp_path / "absent.pem", tmp_path / "no.pem", encrypted):
        with pytest.raises(ConfigurationError, match=rf"the certificate {file} cannot be used .*must not be encrypted"):
            RedisSupplier("rediss://host", certificate=str(file)).open(tmp_path / "store")


def test_a_server_that_does_not_speak_tls_says_so(tmp_path: Path) -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as plain:
        refusal = refusal_of(RedisSupplier(f"rediss://:hunter2@127.0.0.1:{plain}"), tmp_path)
    assert type(refusal) is BackendError
    assert re.search(r"refuses TLS .*see that its port is one for that", str(refusal))
    with socket.create_server(("127.0.0.1", 0)) as listening:  # as Redis does, until a line ends
        silent = RedisSupplier(f"rediss://:hunter2@127.0.0.1:{listening.getsockname()[1]}", timeout=0.5)
        refusal = refusal_of(silent, tmp_path)
    assert type(refusal) is BackendUnavailableError
    assert re.search(r"if that lasts, see that it .*takes connections with TLS", str(refusal))


def test_a_server_that_speaks_tls_alone_says_so(fresh: Path, tmp_path: Path) -> None:
    with tls_server(fresh, "--tls-auth-clients", "no") as port:
        refusal = refusal_of(RedisSupplier(f"redis://:hunter2@localhost:{port}"), tmp_path)
    assert type(refusal) is BackendUnavailableError
    assert re.search(r"if that lasts, see that .*takes connections without TLS", str(refusal))


def refusal_of(supplier: BackendSupplier, directory: Path) -> BackendError:
    """Return the error of opening a store, and check that it does not show the password."""
    with pytest.raises(BackendError) as refused:
        supplier.open(directory)
    assert "***@" in str(refused.value)
    assert "hunter" not in str(refused.value)
    return refused.value


@contextmanager
def answering(text: bytes) -> Iterator[int]:
    """A server that gives the same answer to every call; its port."""
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
    told = translate_errors(tmp_path, Address.of("unix://:hunter2@/socket")).translated(error)
    assert type(told) is BackendError
    assert re.search(r"may not be used by the user of this process .*Permission denied", str(told))


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
