"""Numbers of the different integers of a column."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millpond.stores.encoding.numbering import numbered

INTEGERS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.integers(-3, 3) | INTEGERS))
def test_different_integers_and_their_places_are_those_that_sorting_finds(column: list[int]) -> None:
    distinct, places = numbered(np.array(column, np.int64))
    of_all, among_all = np.unique(np.array(column, np.int64), return_inverse=True)
    assert (distinct.tolist(), places.tolist()) == (of_all.tolist(), among_all.tolist())
    assert distinct.dtype == places.dtype == np.dtype(np.int64)
