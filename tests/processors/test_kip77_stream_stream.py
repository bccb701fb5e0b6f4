"""The tables of KIP-77 for joins of two streams, read as they stand there: one row per record, one column per side.

A row is a time, the left or the right value that arrives then, and the results. Everything has the same key and fits
into one window.
"""

from typing import Any

import pytest

from millpond.processors import JoinWindows, KStream, Produced, StreamsBuilder, TopologyDriver

INNER_JOIN = """
     1 | null |      |
     2 |      | null |
     3 | A    |      |
     4 |      | a    | A-a
     5 | B    |      | B-a
     6 |      | b    | A-b B-b
     7 | null |      |
     8 |      | null |
     9 | C    |      | C-a C-b
    10 |      | c    | A-c B-c C-c
    11 |      | null |
    12 | null |      |
    13 |      | null |
    14 |      | d    | A-d B-d C-d
    15 | D    |      | D-a D-b D-c D-d
"""
LEFT_JOIN = INNER_JOIN.replace("3 | A    |      |", "3 | A    |      | A-null")
OUTER_JOIN = LEFT_JOIN
WAITING = INNER_JOIN


def _rows(table: str) -> list[tuple[int, str, str, list[str]]]:
    cells = [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
    return [(int(time), left, right, results.split()) for time, left, right, results in cells]


def _joined(kind: str, windows: JoinWindows) -> StreamsBuilder:
    builder = StreamsBuilder(value_serde="string")
    left, right = builder.stream("left"), builder.stream("right")
    join = {"inner": KStream.join, "left": KStream.left_join, "outer": KStream.outer_join}[kind]

    def joiner(left: Any, right: Any) -> str:
        return f"{left or 'null'}-{right or 'null'}"

    join(left, right, joiner, windows=windows).to("out", Produced(value_serde="string"))
    return builder


def _check(kind: str, windows: JoinWindows, table: str) -> None:
    with TopologyDriver(_joined(kind, windows).build()) as driver:
        for time, left, right, expected in _rows(table):
            value = left or right
            driver.pipe("left" if left else "right", "k", None if value == "null" else value, time)
            results = driver.read("out")
            assert [record.value for record in results] == expected, f"in row {time}"
            assert {(record.key, record.timestamp) for record in results} <= {("k", time)}


EAGER = JoinWindows.of(1000, eager=True)
LARGE = JoinWindows.of(1000)


def test_kstream_kstream_inner_join_suggested() -> None:
    _check("inner", EAGER, INNER_JOIN)


def test_kstream_kstream_left_join_suggested() -> None:
    _check("left", EAGER, LEFT_JOIN)


def test_kstream_kstream_outer_join_suggested() -> None:
    _check("outer", EAGER, OUTER_JOIN)


def test_kstream_kstream_inner_join_is_the_same_in_both_modes() -> None:
    _check("inner", LARGE, INNER_JOIN)


@pytest.mark.parametrize("kind", ["left", "outer"])
def test_a_record_that_finds_its_partner_later_never_comes_out_alone_unless_eager(kind: str) -> None:
    _check(kind, LARGE, WAITING)


@pytest.mark.parametrize(("kind", "expected"), [("left", ["L-null"]), ("outer", ["L-null", "null-R"])])
def test_a_record_without_a_partner_comes_out_alone_once_when_its_window_is_over(
    kind: str, expected: list[str]
) -> None:
    with TopologyDriver(_joined(kind, JoinWindows.of(10)).build()) as driver:
        driver.pipe("left", "l", "L", 100)
        driver.pipe("right", "r", "R", 101)
        driver.pipe("left", "x", "X", 110)
        assert driver.read("out") == []
        driver.pipe("left", "x", "Y", 112)
        assert [record.value for record in driver.read("out")] == expected
        driver.pipe("left", "x", "Z", 113)
        assert driver.read("out") == []


def test_before_and_after_are_both_included() -> None:
    """The KIP's statement: stream2.ts - before <= stream1.ts <= stream2.ts + after, for its stream 1 on the left."""
    for right_time, matches in ((94, False), (95, True), (120, True), (121, False)):
        with TopologyDriver(_joined("inner", JoinWindows(before=5, after=20)).build()) as driver:
            driver.pipe("left", "k", "A", 100)
            driver.pipe("right", "k", "a", right_time)
            assert bool(driver.read("out")) is matches, right_time


def test_records_of_other_keys_do_not_join() -> None:
    with TopologyDriver(_joined("inner", EAGER).build()) as driver:
        driver.pipe("left", "k", "A", 1)
        driver.pipe("right", "other", "a", 2)
        assert driver.read("out") == []
