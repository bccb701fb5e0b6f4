"""Columns with and without their nulls."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def spread(values: Any, present: npt.NDArray[np.bool_]) -> Any:
    """Return the values of an Arrow array in the places where ``present`` is true, null elsewhere."""
    if len(values) == len(present):
        return values
    return values.take(pa.array(np.cumsum(present) - 1, mask=~present))
