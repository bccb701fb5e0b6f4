"""Rules that the results of aggregates follow; no rows can have results that break them.

Rule of this module: results are compared only where it is known that they are of the same rows, or that one is of all
the rows that the other one is of.
"""

from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import EditRefusedError
from millpond.processors.verbs.kept_calls import ORDERED, calls_in
from millpond.stores.encoding.rows.schemas import Schemas


class Values(NamedTuple):
    """The rows and the values that a result is computed from.

    Attributes:
        argument: the column or expression, as text; None if rows are counted.
        second: the second argument of a function of two, as text.
        where: the condition of the rows, as text; None if there is none.
        since: the time of the first of them, in microseconds since 1970; None if all count.
        version: of the calls, with which it was added.
    """

    argument: str | None
    second: str | None
    where: str | None
    since: int | None
    version: int


def values_in(history: Schemas) -> dict[str, Values]:
    """Return, by name, what each result of the newest calls of a history is computed from."""
    firsts: dict[int, int] = {}
    for number, columns in enumerate(history.versions):
        for column in columns:
            firsts.setdefault(column.id, number)
    ids = {column.field.name: column.id for column in history.versions[-1]}
    return {
        name: Values(call.argument, call.second, call.where, call.since, firsts[ids[name]])
        for name, call in calls_in(history.current).items()
    }


def check_agree(results: pa.Table, history: Schemas) -> None:
    """Refuse results of a key that no rows have together.

    Args:
        results: a table of one row.
        history: the history of the calls.

    Raises:
        ConfigurationError: they contradict each other.
    """
    for fault in _faults(results, history):
        raise EditRefusedError(f"no rows have {results.to_pylist()[0]!r}: {fault}; put results that some rows have")


def _faults(results: pa.Table, history: Schemas) -> Iterator[str]:
    calls, of = calls_in(history.current), values_in(history)
    functions = {name: call.state.removeprefix(ORDERED).partition("(")[0] for name, call in calls.items()}
    for one, other in permutations(functions, 2):
        value, beside = results[one][0], results[other][0]
        if functions[one] == "count" and _has_all_of(of[one], of[other]):
            if functions[other] == "count" and beside.as_py() > value.as_py():
                yield f"{other!r} counts more than {one!r}, which counts all rows"
            if functions[other] != "count" and beside.is_valid and not value.as_py():
                yield f"{one!r} counts nothing, and {other!r} is {beside}"
        if of[one] != of[other] or of[one].argument is None:
            continue
        if functions[one] == "count" and functions[other] != "count" and value.as_py() and not beside.is_valid:
            yield f"{one!r} counts values, and {other!r} is null"
        if (functions[one], functions[other]) == ("min", "max") and pc.greater(value, beside).as_py():
            yield f"{one!r}, the least value, is greater than {other!r}, the greatest"


def _has_all_of(counted: Values, other: Values) -> bool:
    """Return whether a count is of the values of another result, or of all rows, which include them."""
    whole = counted.argument is None and counted.where is None and counted.since is None
    return counted == other or (whole and counted.version <= other.version)
