"""Random topologies run by the real Kafka Streams and by the in-process driver, and what differs made small.

``python -m tests.kafka.random_topologies --seconds 3600`` goes on for an hour; ``--help`` tells the rest.
"""

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from millpond.errors import MillpondError
from tests.golden import comparison, interpreter
from tests.kafka.cases import Answer, KafkaStreams
from tests.kafka.declared import comparable, refused_by_kafka_streams_alone
from tests.kafka.families import FAMILIES, random_case
from tests.kafka.jars import RELEASES, version
from tests.kafka.shrinking import Case, shrink


def differences(case: Case, theirs: Answer, ours: interpreter.Run, release: str) -> list[str]:
    """Return the undeclared differences, each as a sentence."""
    if refused_by_kafka_streams_alone(theirs):
        return []
    failed = (theirs.get("failed_at"), theirs.get("after"))
    if failed != (ours.failed_at, ours.after):
        return [f"Kafka Streams fails at {failed} ({theirs.get('error')}), Millpond at {(ours.failed_at, ours.after)}"]
    found = comparison.compare_exact(*comparable(case, theirs["output"], ours.output, release))
    if found or ours.failed_at is not None:
        return found
    keys = {record.get("key") for record in case["input"]}
    return [
        f"store {name}: expected {entries}, got {held}"
        for name, entries in theirs["stores"].items()
        if comparison.in_one_order(entries) != (held := comparison.in_one_order(_held(ours.stores[name], keys)))
    ]


def _held(entries: list[Any], keys: Iterable[str | None]) -> list[Any]:
    """Return a store's entries; of a versioned store the latest values of these keys."""
    if not any("versions" in entry for entry in entries):
        return entries
    latest = [(entry["key"], entry["latest"]) for entry in entries if entry["key"] in keys]
    return [{"key": key} | found for key, found in latest if found is not None]


def run(case: Case) -> interpreter.Run:
    """Return what Millpond makes of a case."""
    return interpreter.run(case, "memory")


def compare(case: Case, releases: Iterable[KafkaStreams]) -> dict[str, list[str]]:
    """Return the undeclared differences from each release, by its name; a release without any is left out."""
    for streams in releases:
        streams.begin(case)
    try:
        ours = run(case)
    finally:
        answers = {streams.release: streams.answer() for streams in releases}
    found = {release: differences(case, theirs, ours, release) for release, theirs in answers.items()}
    return {release: sentences for release, sentences in found.items() if sentences}


def smallest(case: Case, streams: KafkaStreams) -> tuple[Case, list[str]]:
    """Return the smallest case that is found with a difference of the same kind, and its differences."""

    def difference(smaller: Case) -> tuple[bool, list[str]]:
        """Return whether either of the two fails, and how they differ; no difference if the case makes no sense."""
        theirs = streams.run(smaller)
        try:
            ours = run(smaller)
        except (MillpondError, LookupError, AttributeError, TypeError, ValueError, AssertionError):
            return True, []
        return "failed_at" in theirs or ours.failed_at is not None, differences(smaller, theirs, ours, streams.release)

    failing, _ = difference(case)

    def shows(smaller: Case) -> bool:
        fails, found = difference(smaller)
        return fails == failing and bool(found)

    small = shrink(case, shows)
    return small, difference(small)[1]


def report(case: Case, streams: KafkaStreams) -> str:
    """Return a case made small, as one can read it and run it again."""
    small, found = smallest(case, streams)
    lines = [f"{case['case']} differs from Kafka Streams {version(streams.release)}:", *found, '{"topology": [']
    lines += [f"  {json.dumps(operator)}," for operator in small["topology"]]
    lines += ['], "input": [', *(f"  {json.dumps(record)}," for record in small["input"])]
    return "\n".join([*lines, f'], "config": {json.dumps(small.get("config", {}))}}}'])


def random_cases(families: Iterable[str], seed: int, cases: int | None, seconds: float | None) -> Iterator[Case]:
    """Yield cases of each family in turn, from a seed on; so many, or for so long, or without an end."""
    end = None if seconds is None else time.monotonic() + seconds
    number = 0
    while cases is None or number < cases:
        for family in families:
            if number == cases or (end is not None and time.monotonic() > end):
                return
            yield random_case(family, seed)
            number += 1
        seed += 1


def main(arguments: list[str] | None = None) -> int:
    """Compare, and tell what differs; 1 if anything does."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed of each family")
    parser.add_argument("--cases", type=int, help="end after so many cases")
    parser.add_argument("--seconds", type=float, help="end after so many seconds")
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="only this one; may be repeated")
    parser.add_argument("--release", action="append", choices=RELEASES, help="only this one; may be repeated")
    chosen = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    differing = done = 0
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-cases-")))
        releases = {name: stack.enter_context(KafkaStreams(name, directory)) for name in chosen.release or RELEASES}
        for case in random_cases(chosen.family or list(FAMILIES), chosen.seed, chosen.cases, chosen.seconds):
            done += 1
            for release in compare(case, list(releases.values())):
                differing += 1
                print(report(case, releases[release]), flush=True)
    print(f"{done} cases, {differing} undeclared differences")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
