"""``named_in_errors``: what every verb is called through, whoever has the rows.

Rule of this module: it knows the parameters of a verb by their names alone, and no verb by name.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import ParamSpec, TypeVar

from millpond.errors import ConfigurationError, RecordError
from millpond.processors.calls.known_names import did_you_mean
from millpond.stores.specs.directory import check_plain_name

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def named_in_errors(verb: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Begin each message about an argument or a row with the verb, and with the name that the user gave it."""
    _, *parameters = signature(verb).parameters.values()

    @wraps(verb)
    def named_verb(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        _check_given(verb.__name__, parameters, arguments[1:], options)
        try:
            return verb(*arguments, **options)
        except (ConfigurationError, RecordError) as error:
            name, message = options.get("name"), str(error)
            if name is None or repr(name) not in message:
                error.args = (f"{verb.__name__}{'' if name is None else f' {name!r}'}: {message}",)
            raise

    return named_verb


def several_tables(given: object) -> str:
    """How a user joins the tables of a list, to end a message with; nothing, if it is no such list."""
    if not isinstance(given, list | tuple) or not given or not all(map(_is_table, given)):
        return ""
    return "; tables in a list are joined by multi_join({'orders': orders, 'payments': payments}, on=..., time=...)"


def _is_table(given: object) -> bool:
    return isinstance(given, list) or hasattr(given, "columns")


def _check_given(
    verb: str, parameters: Sequence[Parameter], unnamed: Sequence[object], named: Mapping[str, object]
) -> None:
    """Refuse a call that lacks an argument, or has one that the verb has not, and a name that none can have.

    Args:
        verb: its name.
        parameters: what it takes.
        unnamed, named: what it is given.

    Raises:
        ConfigurationError: it is such a call.
    """
    known = [one.name for one in parameters]
    rows = [one.name for one in parameters if one.kind is not Parameter.KEYWORD_ONLY]
    needed = [one.name for one in parameters if one.default is Parameter.empty]
    line = f"{verb}({', '.join([*rows, *(f'{name}=...' for name in needed if name not in rows)])})"
    for name in named:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigurationError(f"{verb}: there is no parameter {name!r}, only {', '.join(known)}{hint}")
    if len(unnamed) > len(rows) or any(name in named for name in rows[: len(unnamed)]):
        raise ConfigurationError(
            f"{verb}: {len(unnamed)} arguments are given without a name, and only {_listed(rows)} may be so, each "
            f"once; write {line}"
        )
    missing = [name for name in needed if name not in named and name not in rows[: len(unnamed)]]
    if missing:
        hint = "".join(map(several_tables, unnamed))
        are = "is" if len(missing) == 1 else "are"
        raise ConfigurationError(f"{verb}: {_listed(missing)} {are} missing in the call; write {line}{hint}")
    if named.get("name") is not None:
        check_plain_name(f"{verb}: name", named["name"])


def _listed(names: Collection[str]) -> str:
    return " and ".join(names)
