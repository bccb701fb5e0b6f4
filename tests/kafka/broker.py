"""A real Kafka broker on loopback, in a process of its own that does not outlive this one."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from tests.kafka.jars import classpath, java

PATIENCE: Final = 60.0
"""Seconds for a start."""


class Broker:
    """One process that is broker and controller, with its storage in a directory.

    Args:
        directory: for configuration, storage and log.

    Attributes:
        address: ``host:port``, the same after each start.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        port, controller = _free_ports()
        self.address = f"127.0.0.1:{port}"
        storage = directory / "storage"
        self._config = directory / "server.properties"
        self._config.write_text(_CONFIG.format(port=port, controller=controller, storage=storage))
        self._command = [java(), "-Xmx256m", "-cp", classpath(), "Broker", str(self._config), str(storage)]
        self.start()

    def start(self) -> None:
        """Start, on the storage that an earlier start has left, and wait for an answer."""
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        give_up = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.close()
                said = (self._directory / "log").read_text()[-3000:]
                raise RuntimeError(f"the broker at {self.address} did not start:\n{said}")
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(self.address.split(":"), timeout=1):  # type: ignore[arg-type]
                pass
            KafkaAdminClient(bootstrap_servers=self.address).close()
        except (OSError, KafkaError):
            return False
        return True

    @property
    def pid(self) -> int:
        """The process, for those who kill it."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Kill it; its storage stays."""
        if self.runs:
            os.kill(self.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


_CONFIG: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={storage}
# Records of these tests are of 1970, and none of them is too old.
log.retention.ms=-1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
# A broker that was killed may come back soon, and one whose machine is busy is not taken for dead.
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=200
"""
