"""``named_in_errors``: the wrapper through which every verb is called, by tables and DataFrames alike.

Rule of this module: it knows the parameters of a verb by their names alone, and no verb by name.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

from millpond.errors import ConfigurationError, RecordError
from millpond.processors.options.given import check_given
from millpond.processors.options.known_names import did_you_mean
from millpond.stores.specs.directory import check_plain_name

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def named_in_errors(verb: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Begin each message about an argument or a row with the verb, and with the name that the user gave it."""
    _, *parameters = signature(verb).parameters.values()

    @wraps(verb)
    def named_verb(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        hint = "".join(map(several_tables, arguments[1:]))
        check_given(verb.__name__, parameters, arguments[1:], options, hint)
        if options.get("name") is not None:
            check_plain_name(f"{verb.__name__}: name", options["name"])
        try:
            return verb(*arguments, **options)
        except (ConfigurationError, RecordError) as error:
            name, message = options.get("name"), str(error)
            if not message.startswith("verb ") and (name is None or repr(name) not in message):
                error.args = (f"{verb.__name__}{'' if name is None else f' {name!r}'}: {message}",)
            raise

    return named_verb


def several_tables(given: object) -> str:
    """Return the end of a message that says how to join a list of tables; empty if it is no such list."""
    if not isinstance(given, list | tuple) or not given or not all(map(_is_table, given)):
        return ""
    return "; tables in a list are joined by multi_join({'orders': orders, 'payments': payments}, on=..., time=...)"


def _is_table(given: object) -> bool:
    return isinstance(given, list) or hasattr(given, "columns")


def unknown_member(owner: object, name: str) -> AttributeError:
    """Return the error for something that a Pond or a Millpond has not, with what may be meant."""
    verbs = [one for one in dir(type(owner)) if not one.startswith("_")]
    kind = type(owner).__name__
    joins = [one for one in verbs if one.endswith("_join")]
    elsewhere = {
        "join": joins,
        "merge": joins,
        "merge_asof": ["asof_join"],
        "join_asof": ["asof_join"],
        "groupby": ["aggregate"],
        "group_by": ["aggregate"],
        "groupBy": ["aggregate"],
        "agg": ["aggregate"],
        "drop_duplicates": ["deduplicate"],
        "dropDuplicates": ["deduplicate"],
        "unique": ["deduplicate"],
        "transformWithState": ["apply"],
        "rolling": ["over"],
        "window": ["aggregate", "over"],
    }
    meant = ", ".join(elsewhere.get(name, ()))
    hint = f"; did you mean {meant}?" if meant else did_you_mean(name, verbs)
    return AttributeError(f"{kind!r} object has no attribute {name!r}{hint}", name=name, obj=owner)
