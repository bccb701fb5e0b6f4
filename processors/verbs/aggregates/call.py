"""``AggregateCall``: a function and its arguments; ``UserAggregate``: a function that a user defines.

``lag`` and ``grouping``, which aggregate nothing, are here, too.

Rule of this module: it holds the call as written, and refuses what cannot be an argument; it knows no types of columns.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, SupportsFloat

import pyarrow as pa

from millpond.errors import InvalidArgumentError
from millpond.processors.options.given import fitted

COUNT: Final = "count"
"""The only function that may be of no column."""

LAG: Final = "lag"
"""The function that aggregates nothing."""

GROUPING: Final = "grouping"
"""The function that tells of grouping sets, and aggregates nothing."""

MOST_ROWS: Final = (1 << 31) - 1
"""The greatest number of rows that an argument may ask for."""

USER_DEFINED: Final = "user_defined"
"""The name of all functions that users define."""

_BY_TIME: Final = ("first", "last", "collect", "map_agg")
_COMPARING: Final = (
    "min",
    "max",
    "mode",
    "count_distinct",
    "approx_count_distinct",
    "approx_top_k",
    "approx_top_k_accumulate",
    "hll_sketch_agg",
    "theta_sketch_agg",
    "map_agg",
)

BEHIND: Final = (
    "for the row behind each one, join the rows with themselves: asof_join(rows, later, on=..., left_time=..., "
    "right_time=..., direction='forward', exact=False, tolerance=..., grace=..., history=...), where later has the "
    "rows with all columns but those in on under other names"
)
"""The advice to a user who asks for the row behind each one."""


@dataclass(frozen=True, eq=False)
class AggregateCall:
    """An aggregate function and its arguments. Calls are never compared: columns may overload ``==``.

    Attributes:
        function: the function's name.
        column: the name of a column, or an expression that the adapter evaluates; None if rows are counted.
        options: the function's options, by name.
        where: a condition that the adapter evaluates: only rows for which it is true count; None if all do.
        second: the second column of a function of two: rows bring structs of both.
        defined: the function, if it is a user's.

    Raises:
        ConfigurationError: it has no column, and counts nothing.
    """

    function: str
    column: object | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    where: object | None = None
    second: object | None = None
    defined: "UserAggregate | None" = None

    def __post_init__(self) -> None:
        if self.column is None and self.function != COUNT:
            raise InvalidArgumentError(
                f"{self._name} takes a column, and was given None; give one, such as {self._name}('amount')"
            )

    @property
    def takes_values(self) -> bool:
        """True if rows bring a value for it: of its column, or any value where a row counts."""
        return self.column is not None or self.where is not None

    @property
    def wraps(self) -> bool:
        """True if values are the only fields of structs, which are null in rows that do not count.

        This holds where null is a value as others are. Elsewhere, the value itself is null in such rows.
        """
        return self.where is not None and not self.options.get("ignore_nulls", True)

    @property
    def by_time(self) -> bool:
        """True if the result goes by the times of rows, and, at equal times, by their order."""
        return self.function in _BY_TIME

    @property
    def compares(self) -> bool:
        """True if the result depends on which values are equal, or greater; of two columns, on the first one."""
        return self.function in _COMPARING or bool(self.options.get("distinct"))

    def __str__(self) -> str:
        columns = [str(column) for column in (self.column, self.second) if column is not None]
        where = [] if self.where is None else [f"where={self.where}"]
        return f"{self._name}({', '.join([*columns, *where])})"

    @property
    def _name(self) -> str:
        """The name of the function for users."""
        return self.function if self.defined is None else self.defined.name


def shared_columns(calls: Mapping[str, AggregateCall]) -> dict[str, str]:
    """Return the results of calls for which rows bring no column of their own, with those whose column they share.

    >>> shared_columns({"all": AggregateCall("sum", "v"), "most": AggregateCall("max", "v")})
    {'most': 'all'}
    """
    first: dict[str, str] = {}
    plain = {
        name: call.column
        for name, call in calls.items()
        if isinstance(call.column, str) and call.where is None and call.second is None
    }
    return {name: owner for name, column in plain.items() if (owner := first.setdefault(column, name)) != name}


@dataclass(frozen=True, eq=False, kw_only=True)
class UserAggregate:
    """An aggregate function of three small functions; called with a column, or with two, it makes an aggregate call.

    A state is kept as MessagePack between micro-batches: None, bools, numbers, text, bytes, Decimal, datetime and the
    like, and lists and dicts of these; tuples come back as lists. Functions may change a state that they are given, and
    return it. They are pickled by value, so lambdas will do; what they need is imported by the workers.

    Rows come in micro-batches, and the sessions of a key become one: so ``update`` and ``merge`` have to give the same
    for any order of the values, and for any parts that are merged. A row with a null does not count, and where no row
    counts, the result is null.

    Attributes:
        name: identifies the function in kept state, with its version: a Python identifier.
        zero: ``zero()`` makes the state before any value.
        update: ``update(state, value)`` is the state with one more value, as a Python object; of two columns
            ``update(state, value, other)``.
        merge: ``merge(state, other)`` is the state of the values of both.
        type: the type of the results.
        finish: ``finish(state)`` makes a result of a state; by default the state is the result.
        update_many: ``update_many(state, values)`` is ``update`` for many values at once, which are an Arrow array
            without nulls; of two columns with both arrays. It has to give the same.
        version: another number says that states have changed: then a job does not go on with them.

    Raises:
        ConfigurationError: an argument is invalid.

    >>> spread = UserAggregate(
    ...     name="spread",
    ...     zero=lambda: [float("inf"), float("-inf")],
    ...     update=lambda state, price: [min(state[0], price), max(state[1], price)],
    ...     merge=lambda state, other: [min(state[0], other[0]), max(state[1], other[1])],
    ...     finish=lambda state: state[1] - state[0],
    ...     type=pa.float64(),
    ... )
    >>> str(spread("price", where="valid"))
    'spread(price, where=valid)'
    """

    name: str
    zero: Callable[[], Any]
    update: Callable[..., Any]
    merge: Callable[[Any, Any], Any]
    type: pa.DataType
    finish: Callable[[Any], Any] | None = None
    update_many: Callable[..., Any] | None = None
    version: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier() or not self.name.isascii():
            raise InvalidArgumentError(
                f"name={self.name!r} of a UserAggregate is no name of a function; give one such as 'spread'"
            )
        if isinstance(self.version, bool) or not isinstance(self.version, int) or self.version < 0:
            raise InvalidArgumentError(
                f"version={self.version!r} of the UserAggregate {self.name!r} is no version; give a number such as 2"
            )
        if not isinstance(self.type, pa.DataType):
            raise InvalidArgumentError(
                f"type={self.type!r} of the UserAggregate {self.name!r} is no type of results; give one of pyarrow, "
                "such as pa.float64()"
            )
        for name in ("zero", "update", "merge", "finish", "update_many"):
            function = getattr(self, name)
            optional = name in ("finish", "update_many")
            if not callable(function) and not (optional and function is None):
                said = f"{name}={function!r} of the UserAggregate {self.name!r}"
                if optional:
                    raise InvalidArgumentError(f"{said} is no function; give one, or leave it out")
                raise InvalidArgumentError(f"{said} is no function; give one, such as a lambda")

    def __call__(self, column: object, other: object | None = None, *, where: object | None = None) -> AggregateCall:
        """Return the function of a column, or of two."""
        options = {"name": self.name, "version": self.version}
        return AggregateCall(USER_DEFINED, column, options, where, other, self)


def check_bool(value: object, name: str, function: str) -> bool:
    """Refuse a value that is neither True nor False.

    Raises:
        ConfigurationError: it is neither.
    """
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"{name}={value!r} of {function} is no bool; give {name}=True or {name}=False")
    return value


def check_share(value: object, function: str) -> float:
    """Refuse a value that is not a share of the values.

    Raises:
        ConfigurationError: it is no share.
    """
    if isinstance(value, bool) or not isinstance(value, SupportsFloat) or not 0 <= float(value) <= 1:
        raise InvalidArgumentError(f"percentage={value!r} of {function} is not from 0 to 1; write 0.9 for 90 %")
    return float(value)


def check_whole(value: object, name: str, function: str, least: int, most: int) -> int:
    """Refuse a value that is not a whole number within bounds.

    Raises:
        ConfigurationError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgumentError(
            f"{name}={value!r} of {function} is no whole number from {least} to {most}; give one"
        )
    return value


@fitted
def lag(column: object, offset: int = 1) -> AggregateCall:
    """Return the value of the row that is so many rows before each one, null included; null if there is none.

    It aggregates nothing, so ``over`` takes it, and ``aggregate`` does not.

    Args:
        column: the column that is looked up.
        offset: how many rows before, from 1 on.

    Raises:
        ConfigurationError: the offset is not such a number.
    """
    if type(offset) is not int or not 1 <= offset <= MOST_ROWS:
        raise InvalidArgumentError(
            f"offset={offset!r} of lag is no number of rows before each one; give 1 to {MOST_ROWS}, or {BEHIND}"
        )
    return AggregateCall(LAG, column, {"offset": offset})


@fitted
def grouping(column: object) -> AggregateCall:
    """Return whether a result is of all values of a column of grouping sets: 1 if so, and 0 if it is of one of them.

    Null is a value like any other, so a result with a null and 0 is the one of rows with a null. It aggregates
    nothing: only ``aggregate`` by ``cube``, ``rollup`` or ``grouping_sets`` takes it, and shows it behind the key.

    Args:
        column: the name of a column of the sets.
    """
    return AggregateCall(GROUPING, column)
