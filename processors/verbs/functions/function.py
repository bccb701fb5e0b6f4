"""``AggregateFunction``: the contract of an aggregate function that is bound to the type of its column.

Rule of this module: it has the rules of all functions, and the refusal of types that one does not take.
"""

from abc import ABC, abstractmethod
from typing import Any

import pyarrow as pa

from millpond.errors import ColumnTypeError, ConfigurationError, EditRefusedError
from millpond.processors.verbs.functions.columns import Array, Integers
from millpond.stores.encoding.rows.agreed import nullable_type


class StatefulFunction(ABC):
    """Makes results of states, which tell of values of one type. Can be pickled.

    Attributes:
        type: the type of the result.
        state_type: the type of a column of states.
        nullable: whether a result can be null.
        initial: the state before any value; immutable.
    """

    type: pa.DataType
    state_type: pa.DataType
    nullable: bool = True
    initial: Any = None

    def state_of(self, result: Any) -> Any:
        """Return the state with this result, in its physical form, where the result tells all of it.

        Raises:
            ConfigurationError: it does not tell all of it.
            ValueError, OverflowError: no values have it.
        """
        raise EditRefusedError("its state is more than its result")

    @abstractmethod
    def results(self, states: Array) -> Array:
        """Return the results for a column of states, as the type says but for notes in it (``without_notes``).

        Raises:
            OverflowError: a result would leave its type.
        """


class AggregateFunction(StatefulFunction):
    """Folds values of one type into a state.

    A state is a value that MessagePack holds without extension types, or an object with a method
    ``serialize_compact``, which stands for the bytes that it returns. Values are in physical form. A state
    that was passed to ``add`` or ``merge`` must not be used again: they may change it, or return it as it is.

    Folding values in any order, or parts of them into states that are then merged, gives the same result, as far as the
    docstrings of ``millpond.processors.verbs.aggregates`` do not say otherwise.
    """

    @abstractmethod
    def add(self, state: Any, value: Any, time: int) -> Any:
        """Return the state after one more value.

        Args:
            state: the state so far.
            value: the value of a row that arrives after all others in the state; None if it is null.
            time: the event time of its row, in microseconds since 1970.

        Raises:
            OverflowError: the result would leave its type.
        """

    @abstractmethod
    def merge(self, left: Any, right: Any) -> Any:
        """Return the state of the values of both; at equal times those on the left count as arrived first.

        Raises:
            OverflowError: the result would leave its type.
        """

    @abstractmethod
    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        """Return the states of many groups after more values, which are added in their order.

        Args:
            states: the state of each group; null where there is none yet.
            values: the values of the rows, in the order in which they arrived.
            times: the event times of the rows, in microseconds since 1970.
            groups: the number of each row's group.

        Raises:
            pyarrow.ArrowInvalid: a state could not be held, or not exactly; then ``add`` tells.
        """

    @abstractmethod
    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        """Return the states of many groups, each merged of states in their order; null where there is none.

        Args:
            states: the states of parts of the rows; null where a part has none.
            groups: the number of each state's group.
            size: how many groups there are.

        Raises:
            pyarrow.ArrowInvalid: a state could not be held, or not exactly; then ``merge`` tells.
        """


def without_notes(type_: Any) -> Any:
    """Return a type as columns of values and states have it: without nullability and notes inside it."""
    return nullable_type(type_) if pa.types.is_nested(type_) else type_


def refusal(path: str, type_: pa.DataType, reason: str) -> ConfigurationError:
    """Return the error for a column, or a part of one, of a type that a function does not take."""
    return ColumnTypeError(f"{path}: {reason}, and this is {type_}; cast the column or choose another function")
