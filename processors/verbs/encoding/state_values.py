"""The values that a rule of ``apply`` may keep, and the advice for values that it may not.

Rule of this module: it says what is wrong; MessagePack's serde decides what can be kept.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

from millpond.errors import SerdeError
from millpond.stores.encoding.serdes import MSGPACK

_HOLDS: Final = (
    "None, bool, int of 64 bits, float, str, bytes, datetime, date, time, timedelta, Decimal, UUID, and lists and "
    "dicts of them"
)
_DEPTH: Final = 20
"""Deeper than that nobody looks for what is wrong."""


def unfit_state(value: Any) -> SerdeError:
    """Return the error for a value that state cannot hold, with the part of it, and what to write."""
    part = _unfit_part(value)
    kind = f"{type(part).__module__}.{type(part).__qualname__}".removeprefix("builtins.")
    found = "is" if part is value else "has"
    return SerdeError(
        f"state holds {_HOLDS}, and the value {found} {part!r:.100}, of type {kind}; write {_instead(part)} for it"
    )


def _unfit_part(value: Any, depth: int = 0) -> Any:
    """Return the innermost part that cannot be kept."""
    for part in _parts(value) if depth < _DEPTH else ():
        try:
            MSGPACK.serialize(part)
        except SerdeError:
            return _unfit_part(part, depth + 1)
    return value


def _parts(value: Any) -> Iterable[Any]:
    if type(value) is dict:
        return [part for entry in value.items() for part in entry]
    return value if type(value) in (list, tuple) else ()


def _instead(part: Any) -> str:
    """Return the advice for a part: the first that fits."""
    return next(line for fits, line in _LINES if fits(part))


def _has(name: str) -> Callable[[Any], bool]:
    return lambda part: callable(getattr(part, name, None)) and not isinstance(part, type)


_LINES: Final[tuple[tuple[Callable[[Any], bool], str], ...]] = (
    (lambda part: isinstance(part, datetime) and part != part, "None"),
    (_has("to_pydatetime"), "value.to_pydatetime()"),
    (_has("to_pytimedelta"), "value.to_pytimedelta()"),
    (_has("as_py"), "value.as_py()"),
    (lambda part: _has("item")(part) and getattr(part, "shape", None) == (), "value.item()"),
    (_has("tolist"), "value.tolist()"),
    (lambda part: hasattr(part, "columns") and _has("to_dict")(part), "value.to_dict('list')"),
    (lambda part: isinstance(part, Enum), "value.value"),
    (lambda part: is_dataclass(part) and not isinstance(part, type), "dataclasses.asdict(value)"),
    (lambda part: isinstance(part, int), "Decimal(value)"),
    (lambda part: isinstance(part, complex), "[value.real, value.imag]"),
    (lambda part: isinstance(part, str), "value.encode('utf-8', 'surrogatepass')"),
    (lambda part: isinstance(part, Mapping), "dict(value)"),
    (lambda part: isinstance(part, list | tuple), "fewer levels of lists"),
    (lambda part: isinstance(part, set | frozenset), "sorted(value)"),
    (lambda part: isinstance(part, Iterable), "list(value)"),
    (lambda part: hasattr(part, "__dict__") and not callable(part), "vars(value)"),
    (lambda part: True, "a str, a number or a list of its parts"),
)
