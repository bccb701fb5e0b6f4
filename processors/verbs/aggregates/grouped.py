"""A call of ``aggregate`` that tells of grouping sets, and aggregates nothing."""

from millpond.processors.options.given import fitted
from millpond.processors.verbs.aggregates.call import GROUPING, AggregateCall


@fitted
def grouping(column: object) -> AggregateCall:
    """Return whether a result is of all values of a column of grouping sets: 1 if so, and 0 if it is of one of them.

    Null is a value like any other, so a result with a null and 0 is the one of rows with a null. It aggregates
    nothing: only ``aggregate`` by ``cube``, ``rollup`` or ``grouping_sets`` takes it, and shows it behind the key.

    Args:
        column: the name of a column of the sets.
    """
    return AggregateCall(GROUPING, column)
