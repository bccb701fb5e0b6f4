"""Adapts users' functions to how processors call them; how many arguments each takes is found out at build time."""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any


def positional_parameters(function: Callable[..., Any]) -> int | None:
    """Return how many positional arguments ``function`` needs; None if Python cannot tell (some built-in functions)."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is Parameter.empty for p in parameters)


def keyed_joiner(joiner: Callable[..., Any]) -> Callable[[Any, Any, Any], Any]:
    """Return ``joiner`` as a function of key, left and right value; a two-parameter joiner does not get the key."""
    if positional_parameters(joiner) == 3:
        return joiner
    return lambda key, left, right: joiner(left, right)


def keyed_mapper(mapper: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return ``mapper`` as a function of key and value; a one-parameter mapper does not get the key."""
    if positional_parameters(mapper) == 2:
        return mapper
    return lambda key, value: mapper(value)
