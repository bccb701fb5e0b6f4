"""Rows of ``lookup_join`` are explained by the version of the table that the last micro-batch has read."""

import random
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute
import pytest

from millpond import Pond
from millpond.adapters.tables import DeltaTable, ParquetTable
from millpond.errors import ConfigurationError, MissingFileError, RecordError
from millpond.processors.verbs.matching.explanation import MatchExplanation
from tests.pond.delta_tables import WrittenDelta
from tests.pond.test_lookup_join import JOIN, LEFT, OPTIONS, RIGHT, Rows, at, quotes, trades, written

pc: Any = _compute


def versions(rows: Rows, key: str, *, ordered: bool, deletes: bool) -> list[tuple[Any, list[dict[str, Any]]]]:
    """Return, by time, the rows of a key in the order in which they count."""
    there = [row for row in rows if row["k"] == key and not (deletes and row["op"] == "update_preimage")]
    gone = "delete" if deletes else None

    def last(row: dict[str, Any]) -> Any:
        return row["at"], row["o"] if ordered else 0, row["op"] != gone, row["v"]

    return [(time, list(some)) for time, some in groupby(sorted(there, key=last), key=lambda row: row["at"])]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("deletes", [False, True])
def test_the_winner_is_the_match_by_all_options_and_all_rows_of_the_key_are_candidates(
    tmp_path: Path, ordered: bool, deletes: bool
) -> None:
    for seed, options in enumerate(OPTIONS):
        chance = random.Random(seed)
        left, right = trades(chance, 30), quotes(chance, 60)
        table = written(tmp_path / str(seed), right, chance.randint(1, 4))
        given = {**options, **({"right_order": "o"} if ordered else {}), **({"right_op": "op"} if deletes else {})}
        columns: dict[str, Any] = {"columns": ["v", "at"]}
        with Pond().in_batches.lookup_join(LEFT, table, **JOIN, **columns, **given) as joined:
            found = joined.feed(left=left)
            came = {row["id"]: row for row in found.to_pylist()}
            for row in left[:8]:
                told = joined.explain_match(came.get(row["id"], row))
                check(told, row, came.get(row["id"]), given)
                if row["k"] is None:
                    continue
                by_time = versions(right, row["k"], ordered=ordered, deletes=deletes)
                live = [
                    one["at"] for _, some in by_time for one in some if not (deletes and one["op"] == "delete")
                ]  # fmt: skip
                assert [one.since for one in told.candidates if one.row is not None] == live
                beaten = [one for one in told.candidates if one.why == "another row of its key and time counts"]
                assert all(not one.won and one.until == one.since for one in beaten)
                assert len(beaten) == len(live) - sum(
                    not (deletes and some[-1]["op"] == "delete") for _, some in by_time
                )


def check(told: MatchExplanation, row: dict[str, Any], came: dict[str, Any] | None, given: dict[str, Any]) -> None:
    """Check that what is told is what came out."""
    (version,) = told.notes
    assert version.startswith("the rows are those of version [")
    assert version.endswith(", as the last micro-batch reads it")
    how, winners = given.get("how", "inner"), [one.row for one in told.winners]
    if how in ("semi", "anti"):
        assert bool(winners) is ((came is not None) is (how == "semi"))
        return
    if came is None or came["at"] is None:
        assert winners == []
        assert told.verdict.startswith("no match: ")
        assert came is None or came["v"] == given.get("default", {}).get("v")
        return
    assert [one and (one["v"], one["at"]) for one in winners] == [(came["v"], came["at"])]


def of(*rows: tuple[str, int, int]) -> pa.Table:
    return pa.Table.from_pylist([{"k": key, "at": at(second), "v": value} for key, second, value in rows], RIGHT)


def test_a_row_is_told_the_version_that_the_last_micro_batch_has_read(tmp_path: Path) -> None:
    log, table = WrittenDelta(tmp_path / "t", RIGHT), DeltaTable(tmp_path / "t")
    log.add(of(("a", 1, 7), ("a", 5, 9)))
    left = [{"k": "a", "t": at(4), "id": 1}]
    with Pond().in_batches.lookup_join(LEFT, table, **JOIN, columns=["v"], name="priced") as joined:
        before = joined.explain_match(left[0])
        assert before.notes == (f"the rows are those of version 1 of {table!r}, as the first micro-batch reads it",)
        (row,) = joined.feed(left=left).to_pylist()
        log.add(of(("a", 3, 8)))
        told = joined.explain_match(row)
        assert str(told).splitlines() == [
            "priced: k='a', t=2026-06-01 00:00:04+00:00, id=1, v=7",
            "    side   row  from                       until                      older by  why",
            "=>  right  v=7  2026-06-01 00:00:01+00:00  2026-06-01 00:00:05+00:00  0:00:03   "
            "valid at the time of the row",
            "    right  v=9  2026-06-01 00:00:05+00:00  -                          -0:00:01  newer than the row",
            "the match is that of 2026-06-01 00:00:01+00:00: valid at the time of the row",
            f"note: the rows are those of version 1 of {table!r}, as the last micro-batch reads it",
        ]
        (again,) = joined.feed(left=left).to_pylist()
        assert joined.explain_match(again).notes[1:] == ()
        version, changed = joined.explain_match(row).notes
        assert "version 2 of DeltaTable" in version
        assert changed == (
            "the row came out with v=7, but that version of the table has v=8: the micro-batch of the row has read "
            "another one"
        )
        assert joined.explain_match({"k": "z", "t": at(4), "id": 1}).verdict == (
            "no match: the table has no version of its key; the join shows no such row"
        )
    with pytest.raises(ConfigurationError, match="closed"):
        joined.explain_match(row)


def test_a_micro_batch_that_raises_has_read_nothing(tmp_path: Path) -> None:
    table, left = written(tmp_path, [{"k": "a", "at": at(1), "v": 5}]), [{"k": "a", "t": at(9), "id": 1}]
    with Pond().in_batches.lookup_join(LEFT, table, **JOIN, columns=["v"]) as joined:
        (row,) = joined.feed(left=left).to_pylist()
        written(tmp_path, [{"k": "a", "at": at(2), "v": 6, "op": "what"}], name="later")
        assert joined.explain_match(row).winners[0].row == {"v": 5}
        with pytest.raises(RecordError):
            joined.feed(left=[*left, {"k": "a", "t": None, "id": 2}])
        assert joined.explain_match(row).winners[0].row == {"v": 5}
        (tmp_path / "part-0.parquet").unlink()
        (row,) = joined.feed(left=left).to_pylist()
        assert joined.explain_match(row).winners[0].row == {"v": 6}


def test_names_of_many_files_are_cut_off_and_a_version_that_is_gone_is_told(tmp_path: Path) -> None:
    table = written(tmp_path, [{"k": "a", "at": at(number), "v": number} for number in range(30)], 30)
    row = {"k": "a", "t": at(9), "id": 1}
    with Pond().in_batches.lookup_join(LEFT, table, **JOIN, columns=["v"]) as joined:
        joined.feed(left=[row])
        (note,) = joined.explain_match(row).notes
        assert f"... of {ParquetTable(tmp_path)!r}" in note
        assert len(note) < 200 + len(str(tmp_path))
    with Pond().in_batches.lookup_join(LEFT, table, **JOIN, columns=["v"]) as joined:
        joined.feed(left=[row])
        for _ in range(8):  # so that its rows are read anew
            other = Pond().lookup_join([row], table, **JOIN, columns=["v"])
            assert other.num_rows == 1
        (tmp_path / "part-0.parquet").unlink()
        with pytest.raises(MissingFileError, match=r"part-0\.parquet does not exist, which a version"):
            joined.explain_match(row)


def test_nulls_are_equal_where_the_join_says_so_and_a_row_without_a_time_has_no_match(tmp_path: Path) -> None:
    table = written(tmp_path, [{"k": None, "at": at(1), "v": 5}])
    row = {"k": None, "t": at(9), "id": 1}
    for null_safe, winners in ((True, [{"v": 5}]), (False, [])):
        given: dict[str, Any] = {"how": "left", "null_safe": null_safe, "columns": ["v"]}
        with Pond().in_batches.lookup_join(LEFT, table, **JOIN, **given) as joined:
            joined.feed(left=[row])
            assert [one.row for one in joined.explain_match(row).winners] == winners
            told = joined.explain_match({**row, "t": None})
            assert told.verdict == "the row has no time, so nothing is a match"
