"""The named functions of the golden cases: joiners, predicates, mappers, selectors, aggregators, reducers, mergers.

Rule of this module: each name means what the format of the golden files says, and nothing else.
"""

from collections.abc import Callable
from typing import Any

LONG = "int64"
TEXT = "string"


def text(value: Any) -> str:
    """Return a value as it appears inside another: ``null`` if missing, a number in decimal."""
    return "null" if value is None else str(value)


def number(value: Any) -> int:
    """Return all ASCII digits in order as one number; a number is itself, and what has no digits is 0."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    digits = "".join(c for c in value if c in "0123456789")
    return int(digits) if digits else 0


def last24(value: str) -> str:
    return value[-24:]


def joiner(name: str) -> Callable[..., str]:
    """Return a joiner of left and right, or of key, left and right."""
    if name == "concat":
        return lambda left, right: f"{text(left)}-{text(right)}"
    assert name == "concat_key", name
    return lambda key, left, right: f"{text(key)}={text(left)}-{text(right)}"


_PREDICATES: dict[str, Callable[[Any, Any, str], bool]] = {
    "value_len_even": lambda k, v, x: v is not None and len(v) % 2 == 0,
    "value_lt": lambda k, v, x: v is not None and v < x,
    "value_ge": lambda k, v, x: v is not None and v >= x,
    "value_contains": lambda k, v, x: v is not None and x in v,
    "number_even": lambda k, v, x: v is not None and number(v) % 2 == 0,
    "number_gt": lambda k, v, x: v is not None and number(v) > int(x),
    "key_ne": lambda k, v, x: v is not None and k != x,
    "not_null": lambda k, v, x: v is not None,
    "always": lambda k, v, x: True,
    "never": lambda k, v, x: False,
}


def predicate(name: str) -> Callable[[Any, Any], bool]:
    """Return a predicate of key and value."""
    name, _, argument = name.partition(":")
    function = _PREDICATES[name]
    return lambda key, value: function(key, value, argument)


_MAPPERS: dict[str, Callable[[Any, str], Any]] = {
    "identity": lambda v, x: v,
    "upper": lambda v, x: v.upper(),
    "prefix": lambda v, x: x + v,
    "suffix": lambda v, x: v + x,
    "first_char": lambda v, x: v[:1],
    "number": lambda v, x: number(v),
    "str": lambda v, x: str(v),
    "to_null_if_len_odd": lambda v, x: None if len(v) % 2 else v,
    "to_null_if_contains": lambda v, x: None if x in v else v,
    "after_colon": lambda v, x: v[v.index(":") + 1 :] if ":" in v else v,
}


def mapper(name: str) -> Callable[[Any], Any]:
    """Return a mapper of one value; null stays null, except where the mapper gives a default."""
    name, _, argument = name.partition(":")
    if name == "default":
        return lambda value: argument if value is None else value
    function = _MAPPERS[name]
    return lambda value: None if value is None else function(value, argument)


def mapper_type(name: str, before: str) -> str:
    """Return the serde of what ``mapper`` makes of values with the serde ``before``."""
    kinds = {"number": LONG, "identity": before, "default": before}
    return kinds.get(name.partition(":")[0], TEXT)


def _before_colon(value: str) -> str | None:
    before, colon, _ = value.partition(":")
    return before if colon else None


_SELECTORS: dict[str, Callable[[Any, str], Any]] = {
    "value": lambda v, x: text(v),
    "value_first_char": lambda v, x: text(v)[:1],
    "value_first_char_or_null": lambda v, x: None if v.startswith(x) else v[:1],
    "value_prefix_before_colon": lambda v, x: _before_colon(v),
    "number_mod": lambda v, x: str(number(v) % int(x)),
}


def selector(name: str) -> Callable[[Any, Any], Any]:
    """Return a selector of a new key; for a null value it gives a null key, unless the value is not looked at."""
    name, _, argument = name.partition(":")
    if name == "key":
        return lambda key, value: key
    if name == "const":
        return lambda key, value: argument
    function = _SELECTORS[name]
    return lambda key, value: None if value is None else function(value, argument)


def initializer(name: str) -> Callable[[], Any]:
    """Return the initial aggregate."""
    return {"empty": lambda: "", "zero": lambda: 0}[name]


def initializer_type(name: str) -> str:
    """Return the serde of an aggregate with that initial value."""
    return LONG if name == "zero" else TEXT


def _items(aggregate: str) -> set[str]:
    return set(aggregate.split(",")) if aggregate else set()


def _joined(items: set[str]) -> str:
    return ",".join(sorted(items))


def _set_remove_null(key: Any, value: Any, aggregate: str) -> str | None:
    return _joined(_items(aggregate) - {text(value)}) or None


_AGGREGATORS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "concat_add": lambda k, v, a: last24(f"{a}+{text(v)}"),
    "concat_sub": lambda k, v, a: last24(f"{a}-{text(v)}"),
    "concat_key_add": lambda k, v, a: last24(f"{a}+{text(k)}{text(v)}"),
    "sum": lambda k, v, a: a + number(v),
    "sub": lambda k, v, a: a - number(v),
    "set_add": lambda k, v, a: _joined(_items(a) | {text(v)}),
    "set_remove": lambda k, v, a: _joined(_items(a) - {text(v)}),
    "set_remove_null": _set_remove_null,
}


def aggregator(name: str) -> Callable[[Any, Any, Any], Any]:
    """Return an adder or subtractor: ``f(key, value, aggregate)``."""
    return _AGGREGATORS[name]


_REDUCERS: dict[str, Callable[[Any, Any], Any]] = {
    "reduce_concat": lambda a, v: last24(f"{a}+{text(v)}"),
    "reduce_concat_sub": lambda a, v: last24(f"{a}-{text(v)}"),
    "reduce_last": lambda a, v: v,
    "reduce_first": lambda a, v: a,
    "reduce_max": lambda a, v: v if v > a else a,
    "reduce_min": lambda a, v: v if v < a else a,
}


def reducer(name: str) -> Callable[[Any, Any], Any]:
    """Return a reducer: ``f(aggregate, value)``."""
    return _REDUCERS[name]


_MERGERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "concat_merge": lambda k, a, b: last24(f"{text(a)}|{text(b)}"),
    "sum_merge": lambda k, a, b: a + b,
    "set_merge": lambda k, a, b: _joined(_items(a) | _items(b)),
}


def merger(name: str) -> Callable[[Any, Any, Any], Any]:
    """Return a merger of two sessions' aggregates: ``f(key, a, b)``."""
    return _MERGERS[name]
