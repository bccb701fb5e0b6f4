"""Lengths of time for all rows, or columns of lengths: the window of a join of streams, the gap of sessions.

Rule of this module: it knows of columns only their class and the code for them.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from millpond.errors import ArgumentConflictError, InvalidExpressionError, InvalidTimeError, MissingArgumentError
from millpond.processors.calls.arguments import in_micros, join_windows
from millpond.processors.options.join_windows import JoinWindows
from millpond.processors.options.windows import own_gap
from millpond.processors.verbs.joins.stream_join import BOUNDS, OwnBounds
from millpond.stores.encoding.times import FARTHEST, Duration


def join_bounds(
    columns: Collection[str],
    kind: type,
    written: str,
    given: Mapping[str, Any],
    at_most: Duration | None,
    grace: Duration,
) -> tuple[JoinWindows, OwnBounds | None, Mapping[str, Any]]:
    """Return the windows within which rows of two streams belong together, in microseconds.

    Args:
        columns: the columns of the left side.
        kind: the class of columns and expressions.
        written: the function that makes one of a name, for messages.
        given: ``within``, ``before`` and ``after`` as the user gave them.
        at_most: the greatest bound in a column.
        grace: how late a row may be.

    Returns:
        The window, the bounds that are columns, if there are any, and what was given for ``before`` and ``after``.

    Raises:
        ConfigurationError: there is no window, or one is given in two ways, or a column has no greatest bound.
    """
    for name, one in given.items():
        if isinstance(one, str) and one in columns:
            raise InvalidExpressionError(
                f"{name} is {one!r}, a column of left; text is a length of time: give {name}={written}({one!r}) and "
                "the greatest that it may be, such as at_most='1 hour'"
            )
    sides = {name: given[name] if given["within"] is None else given["within"] for name in BOUNDS}
    bounds = _own_bounds([name for name, one in sides.items() if isinstance(one, kind)], given, at_most, written)
    lengths = {name: at_most if isinstance(one, kind) else one for name, one in given.items()}
    windows = join_windows(lengths["within"], lengths["before"], lengths["after"], grace)
    if bounds is not None and max(map(abs, (windows.before, windows.after, windows.grace))) > FARTHEST // 8:
        raise InvalidTimeError(
            f"at_most is {at_most!r}, and grace {grace!r}; where bounds are columns, give lengths of less than "
            "9000 years"
        )
    return windows, bounds, sides


def session_gap(window: object, kind: type, written: str) -> Any:
    """Return the column, or expression, of the gaps of sessions; None if all rows have the same, or without sessions.

    Args:
        window: as the user gave it.
        kind: the class of columns and expressions.
        written: the function that makes one of a name, for messages.

    Raises:
        ConfigurationError: rows have their own gaps, but not in a column.
    """
    gap = own_gap(window)
    if gap is not None and not isinstance(gap, kind):
        raise InvalidTimeError(
            f"the gap of window is {gap!r}; give a length of time, or that of each row: {written}('gap')"
        )
    return gap


def _own_bounds(
    columns: Sequence[str], given: Mapping[str, Any], at_most: Duration | None, written: str
) -> OwnBounds | None:
    """Return the bounds of a join that are columns; None if none is.

    Raises:
        ConfigurationError: nothing says how great they may be, or it says so of none.
    """
    if not columns:
        if at_most is not None:
            raise ArgumentConflictError(
                f"at_most is {at_most!r}, but neither before nor after is a column; give before={written}('...'), or "
                "leave at_most out"
            )
        return None
    if at_most is None:
        told = " and ".join(columns if given["within"] is None else ["within"])
        raise MissingArgumentError(
            f"{told} may differ from row to row, and rows are kept for the greatest; give at_most='1 hour'"
        )
    return OwnBounds(in_micros(at_most, "at_most"), columns)
