"""The real Kafka Streams, asked what comes out of a topology."""

import base64
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.kafka.client import Headers, Message
from tests.kafka.jars import classpath, java


class Witness:
    """Kafka Streams' own test driver, in one process for all questions; a context manager.

    Args:
        directory: where it may keep state, and what it says when it fails.
    """

    def __init__(self, directory: Path) -> None:
        self._complaints = directory / "witness.txt"
        command = [java(), "-Xmx256m", "-cp", classpath(), "Witness", str(directory)]
        with self._complaints.open("w") as complaints:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=complaints, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, name: str, messages: Sequence[tuple[str, Message]]) -> list[Message]:
        """Return the output of the topology of this name, which starts anew, record by record.

        Raises:
            RuntimeError: if Kafka Streams fails.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.writelines([f"{name}\t{len(messages)}\n", *(_line(topic, message) for topic, message in messages)])
        stdin.flush()
        answer: list[Message] = []
        for line in stdout:
            if line == "\n":
                return answer
            answer.append(_message(line.rstrip("\n")))
        raise RuntimeError(f"the witness of {name} failed:\n{self._complaints.read_text()[-3000:]}")


@contextmanager
def live(name: str, address: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The topology of this name in Kafka Streams on a broker; what it says on the way is in ``directory``'s ``log``."""
    command = [java(), "-Xmx256m", "-cp", classpath(), "Witness", str(directory), name, address]
    directory.mkdir(parents=True)
    with (directory / "log").open("wb") as log, subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(topic: str, message: Message) -> str:
    headers = ",".join(f"{_coded(name)}:{_code(value)}" for name, value in message.headers)
    fields = [_coded(topic), _coded(message.key), _coded(message.value), str(message.timestamp), headers]
    return "\t".join(fields) + "\n"


def _message(line: str) -> Message:
    _, key, value, timestamp, headers = line.split("\t")
    name = _text(key)
    assert name is not None, line
    return Message(name, _text(value), int(timestamp), _headers(headers))


def _headers(field: str) -> Headers:
    pairs = [pair.split(":") for pair in field.split(",") if pair]
    return tuple((base64.b64decode(name).decode(), _bytes(value)) for name, value in pairs)


def _coded(text: str | None) -> str:
    return _code(None if text is None else text.encode())


def _code(data: bytes | None) -> str:
    return "-" if data is None else base64.b64encode(data).decode()


def _text(field: str) -> str | None:
    data = _bytes(field)
    return None if data is None else data.decode()


def _bytes(field: str) -> bytes | None:
    return None if field == "-" else base64.b64decode(field)
