"""Tools for tests of a job: its rows in any micro-batches, and a verb's answer once it has been fed with them.

Rule of this module: nothing imports it. It needs Hypothesis (``pip install 'millpond[testing]'``).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from millpond.processors.pond.any_batches import Batch, answer

__all__ = ["answer", "cuts"]


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
