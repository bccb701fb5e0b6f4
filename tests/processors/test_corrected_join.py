"""The state of a corrected join: what it keeps of the records of a key and time, and what it notes."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import SerdeError, UserFunctionError
from millpond.processors.options.joins import JoinType
from millpond.processors.streams.corrected_join import Changes, Kept, KeptSerde
from millpond.processors.verbs.joins.asof_join import Correcting, asof_join
from tests.processors.verbs.running import Rows, an_input, running


def test_records_are_kept_as_the_page_of_formats_shows() -> None:
    rows = [Kept(b"7", b"row", None), Kept(b"8", b"row", b"right")]
    data = bytes.fromhex("9293c40137c403726f77c093c40138c403726f77c4057269676874")
    assert KeptSerde().serialize(rows) == data
    assert KeptSerde().deserialize(data) == rows
    assert KeptSerde() == KeptSerde()
    assert len({KeptSerde(), KeptSerde()}) == 1


@pytest.mark.parametrize(
    "data", [b"", b"\x92", b"\xc0", b"\x91\x01", b"\x91\x92\xc4\x00\xc4\x00", b"\x91\x93\x01\x02\xc0"]
)
def test_what_is_none_of_its_records_is_refused(data: bytes) -> None:
    with pytest.raises(SerdeError, match="was not written by serde 'corrected-records-1'"):
        KeptSerde().deserialize(data)


def test_changes_are_noted_until_they_are_taken() -> None:
    changes = Changes()
    assert changes.earliest is None
    changes.add([b"a", b"b"], np.array([7, 3]))
    changes.add([b"c"], np.array([5]))
    assert changes.earliest == 3
    assert [keys for keys, _ in changes.take()] == [[b"a", b"b"], [b"c"]]
    assert (changes.earliest, changes.take()) == (None, [])


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_left_row_for_which_the_condition_fails_is_left_out_alone(on_error: str) -> None:
    def picky(both: pa.Table) -> Any:
        if 13 in both["id"].to_pylist():
            raise ValueError("13")
        return pa.array([True] * both.num_rows)

    left, right = (
        an_input(side, {"k": pa.string()}, {name: pa.int64()}) for side, name in (("left", "id"), ("right", "v"))
    )
    made = asof_join(
        "j", left, right, JoinType.LEFT, history=100, grace=None, columns=["v"], where=picky,
        correcting=Correcting(100, ["id"]),
    )  # fmt: skip
    lefts = [{"k": "a", "id": number, "t": 5} for number in (12, 13, 14)]
    rows: dict[str, Rows] = {"right": [{"k": "a", "v": 1, "t": 1}], "left": lefts}
    with running(made, on_error=on_error) as driver:
        if on_error == "fail":
            with pytest.raises(UserFunctionError, match="13"):
                driver.pipe(rows, {"left": "t", "right": "t"})
            return
        driver.pipe(rows, {"left": "t", "right": "t"})
        assert [(row["id"], row["v"]) for row in driver.read()] == [(12, 1), (14, 1)]
