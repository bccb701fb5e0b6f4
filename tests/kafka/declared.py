"""The differences that Kafka Streams and Millpond may have: docs/differences-from-kafka-streams.md declares them.

Rule of this module: a difference names its row of that page, the cases that it concerns, and what it leaves of the
answers to compare; everything else must be equal. Nothing here looks at how an answer came about.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.golden.functions import selector
from tests.kafka.jars import RELEASES

Case: TypeAlias = Mapping[str, Any]
Row: TypeAlias = dict[str, Any]
"""A record that came out, as golden files write it."""

Rows: TypeAlias = list[Row]


def page() -> str:
    """Return the page that declares them."""
    return (Path(__file__).parents[2] / "docs" / "differences-from-kafka-streams.md").read_text("utf-8")


@dataclass(frozen=True)
class Difference:
    """A declared difference.

    Attributes:
        rows: how the rows of the page begin that declare it.
        concerns: whether it may show in a case.
        left: what is to be compared of the output of Kafka Streams and of Millpond.
        releases: which releases of Kafka Streams have it.
    """

    rows: tuple[str, ...]
    concerns: Callable[[Case], bool]
    left: Callable[[Case, Rows, Rows], tuple[Rows, Rows]]
    releases: tuple[str, ...] = RELEASES


def comparable(case: Case, theirs: Rows, ours: Rows, release: str) -> tuple[Rows, Rows]:
    """Return what is to be compared of the output of a release of Kafka Streams and of Millpond."""
    for difference in DIFFERENCES:
        if release in difference.releases and difference.concerns(case):
            theirs, ours = difference.left(case, theirs, ours)
    return theirs, ours


def refused_by_kafka_streams_alone(answer: Mapping[str, Any]) -> bool:
    """Return whether Kafka Streams does not build a topology that the page says Millpond takes."""
    return any(pattern.search(answer.get("error", "")) for pattern in REFUSED.values())


def _operators(case: Case, op: str, **fields: Any) -> list[Mapping[str, Any]]:
    return [
        operator
        for operator in case["topology"]
        if operator["op"] == op and all(operator.get(name) == given for name, given in fields.items())
    ]


# Joins of two streams, left and outer


def _joins_streams_with_unpaired(case: Case) -> bool:
    joins = [join for join in _operators(case, "join") if "window" in join and not join["window"].get("eager")]
    return any(join["type"] != "inner" for join in joins)


def _unpaired(row: Row) -> bool:
    _, _, sides = (row["value"] or "").rpartition("=")
    return sides.startswith("null-") or sides.endswith("-null")


def _identity(row: Row) -> tuple[Any, ...]:
    return row["topic"], row["key"], row["value"], row["ts"]


def _without_moments_of_unpaired(case: Case, theirs: Rows, ours: Rows) -> tuple[Rows, Rows]:
    """Return pairs as they came, and those of the others that are not as they may be.

    They may come out sooner than in Kafka Streams, or alone if their partners arrive before it has looked. Of late
    records nothing is compared: Kafka Streams lets them out at once.
    """
    late = _late_records(case)
    moments: dict[tuple[Any, ...], tuple[Rows, Rows]] = {}
    for side, rows in enumerate((theirs, ours)):
        for row in filter(_unpaired, rows):
            if (row["key"], row["ts"]) not in late:
                moments.setdefault(_identity(row), ([], []))[side].append(row)
    left_of_theirs = [row for row in theirs if not _unpaired(row)]
    left_of_ours = [row for row in ours if not _unpaired(row)]
    for wanted, got in moments.values():
        as_many = len(wanted) == len(got)
        sooner = as_many and all(row["after"] <= other["after"] for row, other in zip(got, wanted, strict=True))
        if not sooner and (wanted or not _paired_afterwards(got[0], theirs)):
            left_of_theirs += wanted
            left_of_ours += got
    return left_of_theirs, left_of_ours


def _late_records(case: Case) -> set[tuple[Any, int]]:
    """Key and time of each record that came after a later one."""
    late, newest = set(), -1
    for record in case["input"]:
        if record["ts"] < newest:
            late.add((record["key"], record["ts"]))
        newest = max(newest, record["ts"])
    return late


def _paired_afterwards(row: Row, theirs: Rows) -> bool:
    """Return whether Kafka Streams makes a pair of a record after it has come out alone here."""
    sides = row["value"].rpartition("=")[2]
    alone = sides.removesuffix("-null") if sides.endswith("-null") else sides.removeprefix("null-")
    later = [other for other in theirs if other["after"] >= row["after"] and other["ts"] >= row["ts"]]
    return any(other["key"] == row["key"] and alone in other["value"] for other in later)


# Foreign-key joins


def _joins_by_foreign_key(case: Case) -> bool:
    return bool(_operators(case, "fkJoin"))


def _without_repeated_tombstones(case: Case, theirs: Rows, ours: Rows) -> tuple[Rows, Rows]:
    """Return rows without tombstones of rows without a result, and with the later time of a foreign row's result."""
    foreign = {join["other"] for join in _operators(case, "fkJoin")}
    expected, actual = _news(theirs), _news(ours)
    by_foreign_row = _steps_of(case, foreign)
    for one, other in zip(expected, actual, strict=False):
        later = one["after"] in by_foreign_row and one["ts"] < other["ts"]
        if later and (one["key"], one["value"], one["after"]) == (other["key"], other["value"], other["after"]):
            one["ts"] = other["ts"]
    return expected, actual


def _news(rows: Rows) -> Rows:
    """Return copies of rows, without tombstones of keys that have no value."""
    has: set[Any] = set()
    kept = []
    for row in rows:
        place = (row["topic"], row["key"])
        if row["value"] is not None or place in has:
            kept.append(dict(row))
        (has.discard if row["value"] is None else has.add)(place)
    return kept


def _steps_of(case: Case, parts: set[str]) -> set[int]:
    """Return which records are of the topics that these parts are made of."""
    operators = {operator["id"]: operator for operator in case["topology"] if "id" in operator}
    topics, pending = set(), set(parts)
    while pending:
        operator = operators[pending.pop()]
        topics |= {operator["topic"]} if "topic" in operator else set()
        pending |= {operator[name] for name in ("input", "this", "other") if name in operator}
    return {number for number, record in enumerate(case["input"]) if record.get("topic") in topics}


# Sliding windows that wait for their end


def _suppresses_sliding_windows(case: Case) -> bool:
    sliding = any(o.get("window", {}).get("kind") == "sliding" for o in case["topology"])
    return sliding and bool(_operators(case, "suppress", until="window_closes"))


def _last_of_closed_windows(case: Case, theirs: Rows, ours: Rows) -> tuple[Rows, Rows]:
    """Return the last result of each window, without those at whose end Kafka Streams alone is done with them."""
    expected, actual = _last_results(theirs), _last_results(ours)
    edge = max((end for *_, end in expected), default=None)
    if all(end != edge for *_, end in actual):
        expected = {window: row for window, row in expected.items() if window[-1] != edge}
    return [expected[window] for window in sorted(expected)], [actual[window] for window in sorted(actual)]


def _last_results(rows: Rows) -> dict[tuple[str, int, int], Row]:
    """Return results by key, start and end, without the moment at which they came out."""
    return {
        (row["key"]["key"], row["key"]["start"], row["key"]["end"]): row | {"after": -1, "headers": {}} for row in rows
    }


# Versions


def _calls_a_versioned_store(case: Case) -> bool:
    return bool(_operators(case, "store", kind="versioned"))


def _without_ends_of_versions(case: Case, theirs: Rows, ours: Rows) -> tuple[Rows, Rows]:
    def left(rows: Rows) -> Rows:
        return [row | {"value": re.sub(r',"validTo":(null|-?\d+)', "", row["value"])} for row in rows]

    return left(theirs), left(ours)


# Joins with global tables


def _looks_up_a_global_table(case: Case) -> bool:
    return bool(_operators(case, "globalJoin", type="left"))


def _without_records_that_look_nothing_up(case: Case, theirs: Rows, ours: Rows) -> tuple[Rows, Rows]:
    select = selector(_operators(case, "globalJoin")[0]["selector"])
    records = case["input"]
    dropped = {
        number
        for number, record in enumerate(records)
        if record["key"] is not None and select(record["key"], record["value"]) is None
    }
    return [row for row in theirs if row["after"] not in dropped], ours


DIFFERENCES: Final = (
    Difference(
        ("A record of a left join with a global table",),
        _looks_up_a_global_table,
        _without_records_that_look_nothing_up,
        RELEASES[1:],
    ),
    Difference(
        ("When records without a partner come out", "A record without a partner that arrives late"),
        _joins_streams_with_unpaired,
        _without_moments_of_unpaired,
    ),
    Difference(
        (
            "A row of an inner join that changes, but keeps a foreign key that has no foreign row",
            "The time of a result that a foreign row makes",
        ),
        _joins_by_foreign_key,
        _without_repeated_tombstones,
    ),
    Difference(
        ("`until_window_closes` on sliding windows",),
        _suppresses_sliding_windows,
        _last_of_closed_windows,
    ),
    Difference(
        ("The end of the version that `get(key, as_of)`",),
        _calls_a_versioned_store,
        _without_ends_of_versions,
    ),
)

REFUSED: Final = {
    "Cogrouped streams of which several are grouped by a new key": re.compile(
        r"COGROUPKSTREAM-\S+-repartition-filter is already added"
    ),
}
"""What Kafka Streams alone refuses: how the row of the page begins, and what the error says."""

AVOIDED: Final = (
    "A tombstone that replaces a key's first version at the same timestamp",
    "Serdes without a store",
    "A record without a key in a left join",
    "A foreign value of no bytes",
    "A suppressed table that meets itself",
    "A window of no length",
    "A window that does not include the record's own time",
    "Null values in windowed aggregations",
    "Final results (`EmitStrategy.ON_WINDOW_CLOSE`) when stream time jumps",
    "Times before 1970",
    "Sliding windows and sessions of no length",
    "A topic that a topology both writes and reads",
    "What a processor forwards before it changes a store",
    "A node that names a parent twice",
    "Schedules that are due at the same time",
)
"""How the rows begin of which no case is drawn, since there would be nothing left to compare."""
