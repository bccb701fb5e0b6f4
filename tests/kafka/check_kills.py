"""Processes killed between Kafka and Kafka: nothing is lost, and the output topic describes the right table."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from subprocess import TimeoutExpired

from tests.kafka.broker import Broker
from tests.kafka.client import Message, create_topics, latest, read, write
from tests.kafka.killable_job import VICTIMS
from tests.spark.apart import SECONDS, started

COUNT = 300
JOB = Path(__file__).with_name("killable_job.py")


def test_a_worker_a_driver_and_the_broker_are_killed_in_turn_and_nothing_is_lost(
    broker: Broker, tmp_path: Path
) -> None:
    random = Random(11)
    keys = [random.choice("abcdefgh") for _ in range(COUNT)]
    create_topics(broker.address, "mortal-in", "mortal-out")
    write(broker.address, [("mortal-in", Message(key, f"v{n}", 1_000 + n)) for n, key in enumerate(keys)])
    due = tmp_path / "due"
    due.mkdir()
    for number, victim in enumerate(VICTIMS):
        (due / f"v{80 * (number + 1)}.{victim}").touch()
    starts = 0
    while run(broker, tmp_path) != 0:
        starts += 1
        assert starts <= len(VICTIMS), (tmp_path / "log").read_text()[-5000:]
    assert not list(due.iterdir())
    assert starts >= 1
    written = read(broker.address, "mortal-out")
    table = {key: without_sequence(value) for key, value in latest(written).items()}
    assert table == {key: str(count) for key, count in Counter(keys).items()}
    for key in table:
        values = [message.value for message in written if message.key == key and message.value is not None]
        assert without_repetitions(values) == [str(count) for count in range(1, keys.count(key) + 1)]


def without_repetitions(values: Iterable[str]) -> list[str]:
    """Return each change of a key once, as docs/kafka.md tells readers to leave out what came again."""
    last, new = -1, []
    for value in values:
        sequence = int(value.partition(":")[0])
        if sequence > last:
            last = sequence
            new.append(without_sequence(value))
    return new


def without_sequence(value: str) -> str:
    return value.partition(":")[2]


def run(broker: Broker, directory: Path) -> int:
    """Run the job to its end, or to that of its driver; a broker that dies meanwhile is started again."""
    arguments = [broker.address, str(broker.pid), str(directory)]
    with started(directory / "log", str(JOB), *arguments) as job:
        for _ in range(SECONDS):
            if not broker.runs:
                broker.close()
                broker.start()
            try:
                return job.wait(timeout=1)
            except TimeoutExpired:
                continue
    raise AssertionError(f"the job does not end: {(directory / 'log').read_text()[-5000:]}")
