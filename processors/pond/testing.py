"""Tools for tests of a job: its rows in any micro-batches, and a verb's answer once it has been fed with them.

Rule of this module: nothing imports it. It needs Hypothesis (``pip install 'millpond[testing]'``).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from hypothesis import strategies as st

from millpond.processors.pond.micro_batches import MicroBatches
from millpond.processors.verbs.projections import CHANGE_COLUMNS

__all__ = ["answer", "cuts"]

Batch: TypeAlias = Sequence[Mapping[str, Any]]
"""The rows of one input that come in one micro-batch."""


@st.composite
def cuts(draw: st.DrawFn, rows: Sequence[Mapping[str, Any]], *, in_order: bool = False) -> list[Batch]:
    """Return a strategy for the rows in micro-batches of any size.

    Args:
        draw: the function of Hypothesis.
        rows: the rows, as dicts.
        in_order: whether they come in this order; otherwise in any, so that rows are late.
    """
    arriving = list(rows) if in_order else draw(st.permutations(rows))
    bounds = draw(st.lists(st.integers(0, len(arriving)), max_size=len(arriving), unique=True).map(sorted))
    return [arriving[start:stop] for start, stop in zip([0, *bounds], [*bounds, len(arriving)], strict=True)]


def answer(running: MicroBatches, batches: Iterable[Batch | Mapping[str, Batch]]) -> list[dict[str, Any]]:
    """Return the rows that there are after a verb has been fed, for any micro-batches, in an order of their own.

    Args:
        running: the verb; it is closed then.
        batches: the rows of each micro-batch; for a join, by input (``"left"``, ``"right"``).

    Returns:
        All rows that came out; of a change feed, the rows that are there in the end, without the columns of
        changes.
    """
    with running:
        found = []
        for batch in batches:
            given: dict[str, Any] = dict(batch) if isinstance(batch, Mapping) else {"rows": batch}
            if any(len(rows) for rows in given.values()):
                found += running.feed(**given).to_pylist()
        found += running.complete().to_pylist()
        if running.key is not None:
            last: dict[str, dict[str, Any]] = {}
            for row in sorted(found, key=lambda row: int(row["sequence"])):
                last[repr([row[name] for name in running.key])] = row
            there = (row for row in last.values() if row["op"] == "upsert")
            found = [{name: value for name, value in row.items() if name not in CHANGE_COLUMNS} for row in there]
    return sorted(found, key=repr)
