"""The real Kafka Streams, asked what comes out of a topology."""

import base64
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kafka.client import Headers, Message
from tests.kafka.jars import classpath, java


def ask(name: str, messages: Iterable[tuple[str, Message]]) -> list[Message]:
    """What comes out of the topology of this name, record by record, in Kafka Streams' own test driver."""
    lines = "".join(_line(topic, message) for topic, message in messages)
    command = [java(), "-cp", classpath(), "Witness", name]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the witness of {name} failed ({done.returncode}):\n{done.stderr[-3000:]}")
    return [_message(line) for line in done.stdout.splitlines()]


@contextmanager
def live(name: str, address: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The topology of this name in Kafka Streams on a broker."""
    command = [java(), "-Xmx256m", "-cp", classpath(), "Witness", name, address, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(topic: str, message: Message) -> str:
    headers = ",".join(f"{_code(name)}:{base64.b64encode(value).decode()}" for name, value in message.headers)
    fields = [_code(topic), _code(message.key), _code(message.value), str(message.timestamp), headers]
    return "\t".join(fields) + "\n"


def _message(line: str) -> Message:
    _, key, value, timestamp, headers = line.split("\t")
    name = _text(key)
    assert name is not None, line
    return Message(name, _text(value), int(timestamp), _headers(headers))


def _headers(field: str) -> Headers:
    pairs = [pair.split(":") for pair in field.split(",") if pair]
    return tuple((base64.b64decode(name).decode(), base64.b64decode(value)) for name, value in pairs)


def _code(text: str | None) -> str:
    return "-" if text is None else base64.b64encode(text.encode()).decode()


def _text(field: str) -> str | None:
    return None if field == "-" else base64.b64decode(field).decode()
