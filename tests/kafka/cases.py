"""The real Kafka Streams, asked what it makes of a case: a topology and an input as golden files write them."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, TypeAlias

from tests.kafka.jars import cases_classpath, java

Case: TypeAlias = Mapping[str, Any]
"""``topology``, ``input`` and, if need be, ``config``, in the form of the golden files."""

Answer: TypeAlias = dict[str, Any]
"""``output`` and ``stores``; ``failed_at``, ``after`` and ``error`` if something was thrown."""


class KafkaStreams:
    """A release of Kafka Streams with its own test driver, in one process for all cases; a context manager.

    Args:
        release: a profile of the ``pom.xml``.
        directory: where it may keep state, and what it says when it fails.
    """

    def __init__(self, release: str, directory: Path) -> None:
        self.release = release
        directory.mkdir(parents=True, exist_ok=True)
        self._complaints = directory / f"{release}.txt"
        options = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", cases_classpath(release)]
        with self._complaints.open("w") as complaints:
            pipe = subprocess.PIPE
            command = [java(), *options, "Cases", str(directory / release)]
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=complaints, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, case: Case) -> Answer:
        """Return what comes out of a case.

        Raises:
            RuntimeError: the process has ended.
        """
        self.begin(case)
        return self.answer()

    def begin(self, case: Case) -> None:
        """Let it begin with a case; ``answer`` waits for what comes out."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Answer:
        """Return what came out of the case that has begun; raises as ``run`` does."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Kafka Streams ended:\n{self._complaints.read_text()[-3000:]}")
        answer: Answer = json.loads(line)
        return answer
