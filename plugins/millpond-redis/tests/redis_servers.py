"""Redis servers of the tests' own, and a wire that can be cut between them and a client."""

import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

NOT_INSTALLED = "These tests need redis-server, which was not found. On Debian or Ubuntu: apt-get install redis-server"

MANY = 25_000
"""More changes than one call to the server carries."""


class RedisServer:
    """A server that keeps nothing on the disk unless ``options`` say so; it listens at a socket in ``directory``.

    Args:
        directory: a directory of its own, with a short path, because a socket's path has a limit.
        options: options of ``redis-server``, such as ``--appendonly yes``.
        port: a port of 127.0.0.1 at which it listens, too; 0 for none.
        password: the password that clients have to give.
    """

    def __init__(self, directory: Path, *options: str, port: int = 0, password: str = "") -> None:
        self._directory = directory
        self._socket = directory / "redis.sock"
        self._options = [*options, *(["--requirepass", password] if password else [])]
        self._port = port
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{f':{password}@' if password else ''}{self._socket}"

    def start(self) -> Self:
        """Start, or start again, and wait until it answers."""
        program = shutil.which("redis-server")
        assert program is not None, NOT_INSTALLED
        settings = ["--save", "", "--port", str(self._port), "--bind", "127.0.0.1", "--unixsocket", str(self._socket)]
        self._process = subprocess.Popen(
            [program, *settings, "--dir", str(self._directory), *self._options], stdout=subprocess.DEVNULL
        )
        end = time.monotonic() + 30
        while not self._answers():
            assert self._process.poll() is None, f"redis-server ended with {self._process.returncode}"
            assert time.monotonic() < end, "redis-server does not answer"
            time.sleep(0.01)
        return self

    def _answers(self) -> bool:
        try:
            return bool(self.client().ping())
        except redis.ConnectionError:
            return False

    def client(self) -> Any:
        return redis.Redis(unix_socket_path=str(self._socket), password=self._password or None)

    def keys(self) -> Collection[object]:
        """Return the names of all keys."""
        with self.client() as client:
            return list(client.keys("*"))

    def kill(self) -> None:
        """End the server at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Let the server hang within: it is there, and does not answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Let nobody connect to the server within."""
        elsewhere = self._socket.with_suffix(".away")
        self._socket.rename(elsewhere)
        yield
        elsewhere.rename(self._socket)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Wire:
    """A wire between a client and a server; cut at a command, it breaks the connections that send it, several times.

    Args:
        server: the path of its socket.
        directory: the directory of the client's end.
    """

    def __init__(self, server: str, directory: Path) -> None:
        self._server = server
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(directory / "wire.sock"))
        self._listening.listen()
        self.url = f"unix://{directory / 'wire.sock'}"
        self._cuts = 0
        self._arrives = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, arrives: bool, times: int = 1) -> None:
        """Break the next connection that is used, before a command gets to the server, or before its answer comes."""
        self._arrives, self._cuts = arrives, times

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(self._server)
            threading.Thread(target=self._answer, args=(server, client), daemon=True).start()
            while command := client.recv(2**20):
                if self._cuts:
                    self._cuts -= 1
                    if self._arrives:
                        client.shutdown(socket.SHUT_RDWR)
                        server.sendall(command)
                        time.sleep(0.1)
                    return
                server.sendall(command)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while answer := server.recv(2**20):
                client.sendall(answer)

    def close(self) -> None:
        """Take no more connections."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
