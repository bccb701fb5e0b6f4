"""Arguments that a user gives a function by position and by name, checked against its parameters.

Rule of this module: it knows parameters by their names alone, and no function by name.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import Final, ParamSpec, TypeVar

from millpond.errors import InvalidCallError
from millpond.processors.options.known_names import did_you_mean

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_SYNONYMS: Final = (
    {"by", "key", "keys", "on", "group_by", "groupby", "partition_by", "left_on", "right_on", "left_by", "subset"},
    {"time", "timestamp", "ts", "event_time", "at", "left_time"},
    {"exact", "allow_exact_matches"},
    {"direction", "strategy"},
    {"how", "join_type", "type"},
    {"size", "length", "duration", "width"},
    {"advance", "slide", "hop", "every", "period"},
    {"gap", "inactivity", "session_gap", "timeout"},
    {"last", "rows_between", "frame"},
    {"order", "order_by", "orderBy", "sort", "sort_by"},
    {"n", "k", "limit", "count"},
    {"calls", "aggs", "agg", "aggregates"},
    {"within", "tolerance", "window", "range"},
    {"grace", "lateness", "watermark", "delay", "allowed_lateness"},
    {"ttl", "retention", "expiry", "history"},
    {"processor", "rule", "function", "func"},
)
"""Names that libraries have for the same thing: a user who gives one of them means the one that the function has."""


def fitted(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Refuse a call that lacks an argument, or has one that the function has not, with the call to write."""
    name = function.__qualname__.removesuffix(".__init__")
    parameters = list(signature(function).parameters.values())
    own = 0 if name == function.__qualname__ else 1

    @wraps(function)
    def called(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        check_given(name, parameters[own:], arguments[own:], options)
        return function(*arguments, **options)

    return called


def check_given(
    name: str, parameters: Sequence[Parameter], unnamed: Sequence[object], named: Mapping[str, object], hint: str = ""
) -> None:
    """Refuse a call that lacks an argument, or has one that the function does not take.

    Args:
        name: the name of the function.
        parameters: its parameters.
        unnamed, named: its arguments.
        hint: ends the message about an argument that is missing.

    Raises:
        ConfigurationError: the call is so.
    """
    known = [one.name for one in parameters]
    rows = [one.name for one in parameters if one.kind is not Parameter.KEYWORD_ONLY]
    needed = [one.name for one in parameters if one.default is Parameter.empty]
    first = [one for one in rows if one in needed]
    line = f"{name}({', '.join([*first, *(f'{one}=...' for one in needed if one not in rows)])})"
    for one in named:
        if one not in known:
            raise InvalidCallError(
                f"{name}: there is no parameter {one!r}, only {', '.join(known)}{_meant(one, known, named)}"
            )
    if unnamed and not rows:
        raise InvalidCallError(f"{name}: each argument is given by its name; write {line}")
    if len(unnamed) > len(rows) or any(one in named for one in rows[: len(unnamed)]):
        raise InvalidCallError(
            f"{name}: {len(unnamed)} arguments are given without a name, and only {_listed(rows)} may be so, each "
            f"once; write {line}"
        )
    missing = [one for one in needed if one not in named and one not in rows[: len(unnamed)]]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise InvalidCallError(f"{name}: {_listed(missing)} {are} missing in the call; write {line}{hint}")


def _meant(given: str, known: Sequence[str], named: Collection[str]) -> str:
    """Return the end of a message that guesses the parameter meant by an unknown name: a synonym, or one like it."""
    if given == "time" and {"left_time", "right_time"} <= set(known):
        return "; each side has its own: left_time=..., right_time=..."
    same = next((names for names in _SYNONYMS if given in names), set())
    meant = [one for one in known if one in same and one not in named]
    return f"; did you mean {meant[0]!r}?" if meant else did_you_mean(given, known)


def _listed(names: Collection[str]) -> str:
    return " and ".join(names)
