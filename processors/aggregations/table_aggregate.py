"""The aggregations of a grouped table: they fold each change into the aggregate of its group.

The old value is subtracted first, then the new one added, and one update comes out (KIP-904). Nothing is subtracted
from an aggregate that does not exist. A subtractor that returns None deletes the aggregate; the next value begins anew.
"""

from collections.abc import Callable
from typing import Any

from millpond.processors.aggregations.aggregate import Aggregation
from millpond.processors.aggregations.fold import Update
from millpond.processors.runtime.change import Change


def table_aggregation(initializer: Callable[[], Any], adder: Update, subtractor: Update) -> Aggregation:
    """Return the aggregation ``subtractor(key, old, aggregate)``, then ``adder(key, new, aggregate)``."""

    def update(key: Any, change: Change[Any], aggregate: Any) -> Any:
        if change.old is not None and aggregate is not None:
            aggregate = subtractor(key, change.old, aggregate)
        if change.new is None:
            return aggregate
        return adder(key, change.new, initializer() if aggregate is None else aggregate)

    return Aggregation(update)


def table_count() -> Aggregation:
    """Return the aggregation that counts rows; a group that loses its last row stays, with 0."""
    return table_aggregation(int, lambda key, value, count: count + 1, lambda key, value, count: count - 1)


def table_reduction(adder: Callable[[Any, Any], Any], subtractor: Callable[[Any, Any], Any]) -> Aggregation:
    """Return the aggregation ``subtractor(aggregate, old)``, then ``adder(aggregate, new)``."""

    def update(key: Any, change: Change[Any], aggregate: Any) -> Any:
        if change.old is not None and aggregate is not None:
            aggregate = subtractor(aggregate, change.old)
        if change.new is None:
            return aggregate
        return change.new if aggregate is None else adder(aggregate, change.new)

    return Aggregation(update)
