"""Whoever is killed between Kafka and Kafka, nothing is lost, and the output topic describes the right table."""

from collections import Counter
from itertools import groupby
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
    assert latest(written) == {key: str(count) for key, count in Counter(keys).items()}
    for key, messages in groupby(sorted(written, key=lambda message: message.key), lambda message: message.key):
        # What a micro-batch has written before it was interrupted comes again, so only what is new is compared.
        new = dict.fromkeys(message.value for message in messages)
        assert list(new) == [str(count) for count in range(1, keys.count(key) + 1)]


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
