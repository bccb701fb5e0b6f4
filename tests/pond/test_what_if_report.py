"""The report on changed code beside the code of now."""

from millpond.processors.calls.reports.batch_twin import Differs, RowDifference
from millpond.processors.calls.reports.what_if import ChangedRow, Comparison, Side, WhatIf

EQUAL = Comparison(1_000, 1_000, 0, 0, 0, ())
FOUND = (
    ChangedRow.of(RowDifference(Differs.DIFFERENT, {"id": 1}, ("v",), {"id": 1, "v": "<a>"}, {"id": 1, "v": None})),
    ChangedRow.of(RowDifference(Differs.EXTRA, {"id": 2}, (), {"id": 2, "v": "b"}, None)),
    ChangedRow.of(RowDifference(Differs.MISSING, {"id": 3}, (), None, {"id": 3, "v": "c"})),
)


def test_rows_are_of_now_if_they_were_taken_for_what_was_written() -> None:
    assert [(one.side, one.now, one.changed) for one in FOUND] == [
        (Side.BOTH, {"id": 1, "v": "<a>"}, {"id": 1, "v": None}),
        (Side.NOW, {"id": 2, "v": "b"}, None),
        (Side.CHANGED, None, {"id": 3, "v": "c"}),
    ]


def test_everything_that_differs_is_told_and_what_does_not_takes_a_line() -> None:
    found = WhatIf(4, 7, Comparison(3, 3, 1, 1, 1, FOUND, ("old",)), {"sums.aggregate": EQUAL}, (), ("more.right",))
    assert not found.equal
    assert str(found).splitlines() == [
        "micro-batches 5 to 7",
        "rows: 3 now, 3 changed; 1 only now, 1 only changed, 1 different; columns only now: old",
        "              key   columns  now          changed",
        "different     id=1  v        v='<a>'      v=None",
        "only now      id=2  -        id=2, v='b'  -",
        "only changed  id=3  -        -            id=3, v='c'",
        "state of sums.aggregate: 1,000 now, 1,000 changed; nothing differs",
        "stores only changed: more.right",
    ]
    page = found._repr_html_()
    assert "<td>v=&#x27;&lt;a&gt;&#x27;</td>" in page
    assert page.count("<table>") == 1
    assert "<p>stores only changed: more.right</p>" in page


def test_what_is_the_same_in_rows_columns_and_stores_is_equal() -> None:
    assert WhatIf(0, 1, EQUAL, {"sums.aggregate": EQUAL}).equal
    assert not WhatIf(0, 1, EQUAL, {}, ("sums.aggregate",)).equal
    assert not Comparison(1, 1, 0, 0, 0, (), (), ("more",)).equal
