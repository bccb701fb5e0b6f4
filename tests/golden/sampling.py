"""The golden cases that run on Spark, and the cuts of their inputs into micro-batches.

Rule of this module: cases are chosen by what they have, never by name. It runs nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from tests.golden.loader import Case

MICRO_BATCHES = 3
HANDFUL = 2

Record: TypeAlias = tuple[Any, Any, int]
"""Key, value and timestamp."""

MicroBatch: TypeAlias = dict[str, list[Record]]
"""What a micro-batch brings: for each source topic its records, in the order in which they were recorded."""


def sample(cases: Iterable[Case]) -> list[Case]:
    """Return, of each family, the cases with an operator, or an input, unlike all before them; long inputs come first.

    Cases whose topology cannot be built are left out, and those without any record.
    """
    seen: set[Any] = set()
    chosen = []
    for case in sorted(cases, key=_long_ones_first):
        features = {(case.family, *feature) for feature in _features(case)}
        if features - seen:
            chosen.append(case)
            seen |= features
    return sorted(chosen, key=lambda case: case.id)


def handful(chosen: list[Case]) -> list[Case]:
    """Return a few of them, evenly spread."""
    return chosen[:: -(-len(chosen) // HANDFUL) or 1]


def _long_ones_first(case: Case) -> tuple[int, str]:
    return -len(case.content.get("input", ())), case.id


def _features(case: Case) -> Iterator[tuple[Any, ...]]:
    """Yield what a case has that others may not have; nothing if there is nothing to run."""
    content = case.content
    if not content.get("input") or content.get("error", {}).get("at") in ("build", "start"):
        return
    for operator in content["topology"]:
        window = operator.get("window", {})
        kept = operator.get("materialized", {}).get("kind")
        options = (operator.get(name) for name in ("type", "emit", "until", "when_full"))
        yield operator["op"], window.get("kind"), window.get("eager"), kept, "grace_ms" in operator, *options
    if any("topic" in record and record["key"] is None for record in content["input"]):
        yield ("a null key",)
    if any("advance_wall_clock_ms" in record for record in content["input"]):
        yield ("wall-clock time",)
    yield ("error", content.get("error", {}).get("at"))
    yield ("sinks", sum(operator["op"] == "to" for operator in content["topology"]))
    yield ("upgrade from", content.get("config", {}).get("upgrade_from"))


def source_topics(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the topics that a topology reads, and the DDL type of their values."""
    return {
        operator["topic"]: "bigint" if operator.get("value_type") == "long" else "string"
        for operator in content["topology"]
        if operator["op"] in ("stream", "table", "globalTable")
    }


def micro_batches(content: Mapping[str, Any]) -> list[MicroBatch]:
    """Return the input in as many stretches of equal length, cut where the record stands, whatever its time.

    Within a micro-batch records are taken in the order of time where several topics meet, and not as they were
    recorded: what comes out is compared with a driver's answer to the same micro-batches. Steps of the wall clock are
    no records.
    """
    topics = source_topics(content)
    records = [record for record in content["input"] if record.get("topic") in topics]
    step = -(-len(records) // MICRO_BATCHES)
    return [_by_topic(records[start : start + step], topics) for start in range(0, len(records), step)]


def single_records(content: Mapping[str, Any]) -> dict[int, MicroBatch]:
    """Return each record as a micro-batch of its own, by its position in the input."""
    topics = source_topics(content)
    return {
        position: _by_topic([record], topics)
        for position, record in enumerate(content["input"])
        if record.get("topic") in topics
    }


def _by_topic(records: Iterable[Mapping[str, Any]], topics: Iterable[str]) -> MicroBatch:
    batch: MicroBatch = {topic: [] for topic in topics}
    for record in records:
        batch[record["topic"]].append((record["key"], record["value"], record["ts"]))
    return batch
