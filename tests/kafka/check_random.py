"""Random topologies and inputs: Millpond answers as the real Kafka Streams does, but for what is declared.

``tests/kafka/random_topologies.py`` goes on from here for as long as one likes.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.golden import interpreter
from tests.kafka import random_topologies
from tests.kafka.cases import KafkaStreams
from tests.kafka.declared import AVOIDED, DIFFERENCES, REFUSED, page
from tests.kafka.families import FAMILIES, random_case
from tests.kafka.jars import RELEASES
from tests.kafka.random_topologies import compare, report, smallest

SEEDS = range(11)


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, KafkaStreams]]:
    with ExitStack() as stack:
        directory = tmp_path_factory.mktemp("cases")
        yield {name: stack.enter_context(KafkaStreams(name, directory)) for name in RELEASES}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_of_random_topologies_answers_as_both_releases_of_kafka_streams(
    family: str, releases: dict[str, KafkaStreams]
) -> None:
    reports = []
    for case in (random_case(family, seed) for seed in SEEDS):
        reports += [report(case, releases[release]) for release in compare(case, list(releases.values()))]
    assert not reports, "\n".join(reports)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_family_draws_makes_records_come_out(family: str) -> None:
    runs = [random_topologies.run(random_case(family, seed)) for seed in SEEDS]
    assert sum(bool(run.output) for run in runs) > len(runs) / 2


def test_a_wrong_answer_is_found_and_made_small(
    releases: dict[str, KafkaStreams], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a table's tombstones got lost on the way out."""

    def without_tombstones(case: dict[str, Any]) -> interpreter.Run:
        run = interpreter.run(case, "memory")
        run.output = [row for row in run.output if row["value"] is not None]
        return run

    monkeypatch.setattr(random_topologies, "run", without_tombstones)
    cases = [random_case("table_operators", seed) for seed in SEEDS]
    large = next(case for case in cases if len(case["topology"]) > 3 and compare(case, list(releases.values())))
    small, found = smallest(large, releases[RELEASES[0]])
    assert len(small["topology"]) <= 3
    assert len(small["input"]) <= 2 < len(large["input"])
    assert len(found) == 1


def test_each_declared_difference_is_a_row_of_the_page() -> None:
    declared = [row for difference in DIFFERENCES for row in difference.rows]
    assert [row for row in [*declared, *REFUSED, *AVOIDED] if f"\n| {row}" not in page()] == []
