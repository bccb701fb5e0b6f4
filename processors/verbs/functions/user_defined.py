"""``UserDefined``: a user's function, and the form of its states where the function is not at hand.

Rule of this module: a user's function may raise anything and return anything; errors name the function, and
no state is kept that cannot be read again.

The state: nil before any value, or bytes: the MessagePack of the user's state.
"""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from traceback import extract_tb
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millpond.errors import RecordError, SerdeError
from millpond.processors.runtime.failures import describe
from millpond.processors.runtime.order.time_order import stable_order
from millpond.processors.verbs.aggregates import UserAggregate
from millpond.processors.verbs.encoding.python_values import check_readable, python_values
from millpond.processors.verbs.functions.columns import Array, Integers, present
from millpond.processors.verbs.functions.function import AggregateFunction
from millpond.processors.verbs.functions.pairs import Complete
from millpond.stores.encoding.rows.physical import from_physical, normalized
from millpond.stores.encoding.serdes import MSGPACK


class FailedFunction(Exception):
    """A user's function raised something, or returned what cannot be used."""


class Held:
    """A user's state that may have been changed, until it is stored.

    Args:
        name: the name of the function.
        value: the state.
    """

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)

    def serialize_compact(self) -> bytes:
        """Return the bytes of the state.

        Raises:
            TypeError: MessagePack does not have it.
        """
        try:
            return MSGPACK.serialize(self.value)
        except SerdeError as error:
            raise TypeError(
                f"{self.name!r} has made a state that cannot be kept, {self.value!r:.200} ({error.__cause__}): states "
                "are of None, bools, numbers, text, bytes, datetime, Decimal, lists and dicts"
            ) from error


class UserDefined(AggregateFunction):
    """A user's function of a column, or of both fields of structs.

    Args:
        path: the name of the result in errors.
        type_: the type of the values, which are not null.
        given: the function.
        pairs: whether values are structs of two.
    """

    state_type = pa.binary()

    def __init__(self, path: str, type_: pa.DataType, given: UserAggregate, *, pairs: bool) -> None:
        self.type = normalized(given.type, path)
        self._path = path
        self._values = type_
        self._given = given
        self._pairs = pairs

    def add(self, state: Any, value: Any, time: Any) -> Any:
        if value is None:
            return state
        held = self._held(state)
        (arguments,) = zip(*self._python(from_physical([value], self._values)), strict=True)
        held.value = self._call("update", self._given.update, held.value, *arguments)
        return held

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        one, other = self._held(left), self._held(right)
        return Held(self._given.name, self._call("merge", self._given.merge, one.value, other.value))

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        owners = groups[present(values)]
        order = stable_order(owners)
        owners, given = owners[order], values.drop_null().take(pa.array(order))
        made = states.to_pylist()
        try:
            columns = self._columns(given) if self._given.update_many is not None else self._python(given)
            for start, stop in pairwise(np.flatnonzero(np.diff(owners, prepend=-1, append=-1)).tolist()):
                held = self._held(made[int(owners[start])])
                self._extend(held, [column[start:stop] for column in columns])
                made[int(owners[start])] = held
            packed = [one.serialize_compact() if isinstance(one, Held) else one for one in made]
        except (FailedFunction, TypeError) as error:
            raise pa.ArrowInvalid(str(error)) from error
        return pa.array(packed, pa.binary())

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        made: list[Any] = [None] * size
        try:
            for group, state in zip(groups.tolist(), states.to_pylist(), strict=True):
                made[group] = self.merge(made[group], state)
            packed = [one.serialize_compact() if isinstance(one, Held) else one for one in made]
        except (FailedFunction, TypeError) as error:
            raise pa.ArrowInvalid(str(error)) from error
        return pa.array(packed, pa.binary())

    def results(self, states: Array) -> Array:
        found = [None if one is None else self._finished(one) for one in states.to_pylist()]
        try:
            return pa.array(found, self.type, from_pandas=False)
        except _NO_VALUE:
            for value in found:
                self._check(value)
            raise

    def _extend(self, held: Held, columns: Sequence[Any]) -> None:
        many, update = self._given.update_many, self._given.update
        if many is not None:
            held.value = self._call("update_many", many, held.value, *columns)
            return
        for arguments in zip(*columns, strict=True):
            held.value = self._call("update", update, held.value, *arguments)

    def _held(self, state: Any) -> Held:
        if isinstance(state, Held):
            return state
        value = self._call("zero", self._given.zero) if state is None else MSGPACK.deserialize(state)
        return Held(self._given.name, value)

    def _finished(self, data: bytes) -> Any:
        state, finish = MSGPACK.deserialize(data), self._given.finish
        return state if finish is None else self._call("finish", finish, state)

    def _check(self, value: Any) -> None:
        """Refuse an invalid result.

        Raises:
            FailedFunction: it is invalid.
        """
        try:
            pa.array([value], self.type, from_pandas=False)
        except _NO_VALUE as error:
            made = "the state" if self._given.finish is None else "finish"
            raise FailedFunction(
                f"{made} of {self._given.name!r} gave {value!r:.200}, which is no {self.type} ({error})"
            ) from error

    def _call(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:  # a user's code may raise anything
            shown = "" if len(arguments) < 2 else f" for {', '.join(map(_shown, arguments[1:]))}"
            place = extract_tb(error.__traceback__)[-1]
            raise FailedFunction(
                f"{what} of {self._given.name!r} raised {describe(error)}{shown} ({place.filename}:{place.lineno})"
            ) from error

    def _columns(self, values: Array) -> list[Any]:
        return list(values.flatten()) if self._pairs else [values]

    def _python(self, values: Array) -> list[list[Any]]:
        """Return the values as Python has them, a list for each argument.

        Raises:
            FailedFunction: Python cannot hold one.
        """
        try:
            return [python_values(self._path, column) for column in self._columns(values)]
        except RecordError as error:
            raise FailedFunction(str(error)) from error


class ShownState(AggregateFunction):
    """The states of a user's function that is not at hand: as JSON."""

    type = pa.string()
    state_type = pa.binary()

    def add(self, state: Any, value: Any, time: Any) -> Any:
        raise TypeError("the function is not here")

    def merge(self, left: Any, right: Any) -> Any:
        raise TypeError("the function is not here")

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        raise TypeError("the function is not here")

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        raise TypeError("the function is not here")

    def results(self, states: Array) -> Array:
        found = [
            None if one is None else json.dumps(MSGPACK.deserialize(one), default=repr) for one in states.to_pylist()
        ]
        return pa.array(found, self.type)


_NO_VALUE: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)


def _shown(value: Any) -> str:
    return f"{value!r:.200}"


def bind_user_defined(path: str, type_: pa.DataType, given: UserAggregate | None, *, pairs: bool) -> AggregateFunction:
    """Return a user's function of a column, or of structs of two; without the function, what shows its states.

    Raises:
        ConfigurationError: such values have no form in Python, or there are no such results.
    """
    if given is None:
        return ShownState()
    check_readable(pa.schema([pa.field(path, type_)]), f"the argument of {path!r}")
    function = UserDefined(path, type_, given, pairs=pairs)
    return Complete(function) if pairs else function
