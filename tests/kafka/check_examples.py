"""The commands of the page of examples/kafka, run one after the other, write the records that the page shows."""

import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.kafka.broker import Broker
from tests.kafka.client import Message, read
from tests.kafka.jars import connector_jars
from tests.packaging.code_blocks import PAGES, blocks
from tests.spark.apart import SECONDS, kill_group

PAGE = "examples/kafka/README.md"
NUMBER = re.compile(r"(?<=sequence:)\d+")


def test_the_jobs_write_what_the_page_shows_and_a_second_start_goes_on_and_repeats_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    first, jobs, second = (block.commands for block in blocks(PAGE, "sh"))
    _, *shown = (block.code for block in blocks(PAGE, "text"))
    expected: dict[str, list[str]] = defaultdict(list)
    for number, produce in enumerate([first, second]):
        run(produce, broker.address, tmp_path)
        run(jobs, broker.address, tmp_path)
        for topic, rows in zip(["priced", "catalog"], shown[2 * number : 2 * number + 2], strict=True):
            expected[topic] += rows.splitlines()
            written = [as_printed(message) for message in read(broker.address, topic)]
            assert by_key(unnumbered(written)) == by_key(unnumbered(expected[topic]))
    for rows_of_a_key in by_key(map(as_printed, read(broker.address, "catalog"))).values():
        numbers = [int(number) for row in rows_of_a_key for number in NUMBER.findall(row)]
        assert numbers == sorted(set(numbers))
    large = [as_printed(message) for message in read(broker.address, "large-orders")]
    assert large == ['trace:a2,gift:\t2\t{"product": "pear", "pieces": 12}']


def as_printed(message: Message) -> str:
    """Return a record as Kafka's console consumer prints it."""
    headers = ",".join(f"{name}:{(content or b'').decode()}" for name, content in message.headers)
    return f"{headers or 'NO_HEADERS'}\t{message.key}\t{'null' if message.value is None else message.value}"


def unnumbered(rows: Iterable[str]) -> list[str]:
    """Return the rows without the numbers of changes, which depend on how many tasks there are."""
    return [NUMBER.sub("n", row) for row in rows]


def by_key(rows: Iterable[str]) -> dict[str, list[str]]:
    """Return the rows of each key, in their order."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        found[row.split("\t")[1]].append(row)
    return found


def run(commands: Sequence[str], broker: str, place: Path) -> None:
    """Run commands of the page at the same time, with this broker and place, and jars in place of ``--packages``."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    jobs = []
    for command in commands:
        words = shlex.split(command.replace("localhost:9092", broker).replace("/tmp/", f"{place}/"))
        if "--packages" in words:
            at = words.index("--packages")
            words[at : at + 2] = ["--jars", ",".join(map(str, connector_jars()))]
        with (place / "log").open("ab") as log:
            environment = os.environ | {"PATH": programs}
            jobs.append(
                subprocess.Popen(
                    words, cwd=PAGES[PAGE].parent, env=environment, stdout=log, stderr=log, start_new_session=True
                )
            )
    try:
        codes = [job.wait(timeout=SECONDS) for job in jobs]
    finally:
        for job in jobs:
            if job.poll() is None:
                kill_group(job)
    assert not any(codes), (place / "log").read_text()[-5000:]
