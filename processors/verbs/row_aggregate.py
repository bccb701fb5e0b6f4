"""``RowAggregate``: several aggregate functions as the one aggregation that the DSL runs for each key.

Rule of this module: it knows the order of the calls and their places; the functions know values.

The engine copies an aggregate wherever it needs it twice, and lets an aggregator change what it is given
(``millpond.processors.aggregations.aggregate``). So there is one list of states a key, changed in place: without
copies, if only the last update of a micro-batch is forwarded.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from typing import Any, Final, Self

import msgpack
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import (
    ConfigurationError,
    EditRefusedError,
    InvalidValueError,
    MissingArgumentError,
    RecordError,
    SerdeError,
    UnreadableRowError,
)
from millpond.processors.aggregations.aggregate import Addition, Aggregation
from millpond.processors.aggregations.session_parts import starting_states
from millpond.processors.dsl.wiring.aggregations import AnyWindows
from millpond.processors.options.windows import SessionWindows, TimeWindows
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.binding import bind, state_name
from millpond.processors.verbs.combining import RowCombiner, float_sums, merges_exactly
from millpond.processors.verbs.encoding.python_values import shown_key
from millpond.processors.verbs.encoding.state_serde import Slots, StateSerde
from millpond.processors.verbs.functions.chosen import Since
from millpond.processors.verbs.functions.function import AggregateFunction, StatefulFunction
from millpond.processors.verbs.functions.reversible.made import made_reversible
from millpond.processors.verbs.functions.row_fold import MOMENTS, TIMES, RowFold, rows_type, states_type
from millpond.processors.verbs.functions.sums import Average
from millpond.processors.verbs.functions.user_defined import FailedFunction
from millpond.processors.verbs.kept_calls import ORDERED, KeptCall
from millpond.processors.verbs.verb import Input
from millpond.stores.encoding.column_serdes import ColumnarSerde, ColumnSerde
from millpond.stores.encoding.nulls import spread
from millpond.stores.encoding.rows.nested import with_leaves
from millpond.stores.encoding.rows.physical import normalized, null_mask, to_physical
from millpond.stores.encoding.rows.row_columns import RowColumnSerde
from millpond.stores.encoding.rows.tuple_keys import KeyCodec

pc: Any = _compute

STATE_VERSION: Final = 1
"""The number of the form of all states; part of their serde's name, and so of a topology's fingerprint."""

REVERSIBLE_VERSION: Final = 1
"""The number of the form of states of rows that come and go (``functions.reversible``), likewise."""

_UNPACKABLE: Final = (TypeError, ValueError, OverflowError, AttributeError)
_UNREADABLE: Final = (TypeError, ValueError, msgpack.UnpackException)
_UNUSABLE: Final = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError)
"""The errors of functions for states that are MessagePack, but not theirs."""


class InputSerde(ColumnarSerde[tuple[Any, ...]]):
    """The serde of rows for an aggregation: a MessagePack array of the time, then the physical values of the columns.

    Nested values come back as tuples.

    Args:
        rows: the struct of the time and the columns.

    >>> serde = InputSerde(pa.struct([("time", pa.int64()), ("0", pa.float64()), ("1", pa.string())]))
    >>> serde.deserialize(serde.serialize((1_000_000, 2.5, "a")))
    (1000000, 2.5, 'a')
    """

    name = "aggregate-input"

    def __init__(self, rows: pa.DataType) -> None:
        self._rows = rows
        self._pack = msgpack.Packer().pack

    def __reduce__(self) -> tuple[type["InputSerde"], tuple[pa.DataType]]:
        return InputSerde, (self._rows,)

    @property
    def columns(self) -> ColumnSerde:
        return RowColumnSerde(self._rows)

    def serialize(self, value: tuple[Any, ...]) -> bytes:
        try:
            packed: bytes = self._pack(value)
        except _UNPACKABLE as error:
            raise SerdeError(f"{value!r} is no array of physical values ({error})") from error
        return packed

    def deserialize(self, data: bytes) -> tuple[Any, ...]:
        try:
            value = msgpack.unpackb(data, use_list=False)
        except _UNREADABLE as error:
            raise SerdeError(f"{data!r} is no input of an aggregate: {error}") from error
        if value.__class__ is not tuple:
            raise SerdeError(f"{data!r} is no input of an aggregate, but {value!r}")
        row: tuple[Any, ...] = value
        return row


class RowAggregate:
    """Several calls as one aggregation, for ``aggregate(initializer, aggregator, ...)`` of the DSL. Can be pickled.

    Args:
        calls: by the name of the result's column, in the order of the columns.
        types: by the same names, the types of the values that rows bring for the calls; ``count()`` has none.
        ordered: whether rows have, in place of their time, bytes that compare as their times and orders do.
        slots: the places in kept rows of the calls' states; None if nothing else is kept, and they are in order.
        since: by the names of results, the times since which rows count for them, in microseconds since 1970; for the
            others all rows count.
        gaps: whether rows bring, behind the values for the calls, the gaps of their sessions.
        shared: the results for which rows bring no value of their own, with the earlier results whose value they take.
        reversible: whether rows come and go; then ``functions`` take them, there is no ``aggregation``, and rows have a
            value for each call, in the place of its state. A row that ends before the place of a call, which was added
            later, does not count for it.

    Attributes:
        functions: the functions, in the order of the calls.
        places: the place in a row of each one's value.
        slots: the places in kept rows of their states.
        arguments: the types of the values that rows bring, by the names of the results.
        state_serde, input_serde: the serdes of kept rows, and of new rows.
        schema: the columns of the results.

    Raises:
        ConfigurationError: there are no calls, there is no such function, or it does not take the type.

    >>> from millpond.processors.verbs.aggregates import avg, count
    >>> row = RowAggregate({"orders": count(), "mean": avg("price")}, {"mean": pa.int64()})
    >>> state = row.aggregator(b"key", (1_000_000, 3), row.initializer())
    >>> state = row.aggregator(b"key", (2_000_000, 4), state)
    >>> row.results([state, None]).to_pylist()
    [{'orders': 2, 'mean': 3.5}, {'orders': None, 'mean': None}]
    """

    def __init__(
        self,
        calls: Mapping[str, AggregateCall],
        types: Mapping[str, pa.DataType],
        *,
        ordered: bool = False,
        slots: Slots | None = None,
        since: Mapping[str, int] | None = None,
        gaps: bool = False,
        shared: Mapping[str, str] | None = None,
        reversible: bool = False,
    ) -> None:
        check_any(calls)
        self._labels = [f"{name!r}, {call}" for name, call in calls.items()]
        self._keys: KeyCodec | None = None
        given = {
            name: normalized(types[name], name) if call.takes_values else pa.null() for name, call in calls.items()
        }
        bound = {name: _unwrapped(given[name]) if call.wraps else given[name] for name, call in calls.items()}
        times = MOMENTS if ordered else TIMES
        functions = {name: bind(call, name, bound[name], times) for name, call in calls.items()}
        self._since = since or {}
        staying = [
            Since(one, self._since[name], times) if name in self._since else one for name, one in functions.items()
        ]
        self.functions: Sequence[StatefulFunction] = staying
        if reversible:
            called = zip(calls.values(), staying, strict=True)
            self.functions = [made_reversible(one, by_time=call.by_time) for call, one in called]
        self._averages = {name: one for name, one in functions.items() if isinstance(one, Average)}
        self._called = {name: call.function for name, call in calls.items()}
        self._initial = [function.initial for function in self.functions]
        self._commutes = not any(call.by_time for call in calls.values())
        states = {name: state_name(call, bound[name]) for name, call in calls.items()}
        kind = f"reversible-state-{REVERSIBLE_VERSION}" if reversible else f"aggregate-state-{STATE_VERSION}"
        slots = slots or Slots.first(
            f"{kind}: {'ordered; ' if ordered else ''}{'; '.join(states.values())}", len(calls)
        )
        self.places: Sequence[int] = slots.places if reversible else _places(calls, shared or {})
        self._staying: list[AggregateFunction] = [] if reversible else staying
        self._adds = [(number, self.places[number], one.add) for number, one in enumerate(self._staying)]
        by_time = {name for name, call in calls.items() if ordered and call.by_time}
        self._states = {name: f"{ORDERED if name in by_time else ''}{state}" for name, state in states.items()}
        arguments = [(name, given[name]) for name, call in calls.items() if call.takes_values]
        self.arguments = pa.schema([pa.field(*named) for named in arguments])
        self._fold = None if reversible else RowFold(staying, self.places)
        self._additions = [
            Addition(result, place, self._since[result])
            for result, place in zip(calls, slots.places, strict=True)
            if result in self._since
        ]
        self.slots = slots
        self.state_serde = StateSerde(slots, states_type(self.functions), self._initial)
        brought = [type_ for name, type_ in arguments if name not in (shared or {})]
        self.input_serde = InputSerde(rows_type([*brought, *([pa.int64()] if gaps else [])], times))
        self._merges = not reversible and all(map(merges_exactly, calls.values()))
        self._float_sums = float_sums(calls, bound, self.places)
        self.schema = pa.schema(
            [pa.field(name, of.type, of.nullable) for name, of in zip(calls, self.functions, strict=True)]
        )

    def of_verb(self, name: str, keys: KeyCodec) -> Self:
        """Return the same aggregation, whose errors begin with the verb's name, and show keys as the user knows them.

        Args:
            name: the verb's name.
            keys: reads the keys.
        """
        made = copy(self)
        made._labels = [f"aggregate {name!r}: {label}" for label in self._labels]
        made._keys = keys
        return made

    def kept(
        self,
        arguments: Mapping[str, str],
        conditions: Mapping[str, str] | None = None,
        seconds: Mapping[str, str] | None = None,
    ) -> dict[str, KeptCall]:
        """Return the calls as they are kept, with arguments and conditions as text."""
        where, second = conditions or {}, seconds or {}
        return {
            name: KeptCall(state, arguments.get(name), where=where.get(name), second=second.get(name))
            for name, state in self._states.items()
        }

    @property
    def aggregation(self) -> Aggregation:
        """The aggregation of each key, or of each key and window."""
        return Aggregation(
            self.aggregator,
            self.initializer,
            self.merger,
            columns=self._fold,
            commutes=self._commutes,
            additions=self._additions,
        )

    def combiner(self, rows: Input, windows: AnyWindows | None) -> RowCombiner | None:
        """Return the combiner that makes states of rows before they travel; None if each row has to travel.

        Args:
            rows: packs rows.
            windows: the windows of rows, in microseconds; None for none.
        """
        if self._fold is None or not self._merges:
            return None
        states, initial = states_type(self.functions), self._initial
        if isinstance(windows, SessionWindows) and windows.gap_of is None and windows.within is None:
            states, initial = starting_states(states), [*initial, 0]
        elif not (windows is None or (isinstance(windows, TimeWindows) and windows.is_tumbling)):
            return None
        serde = StateSerde(Slots.first("partial", len(initial)), states, initial)
        return RowCombiner(rows, self._fold, serde, self._float_sums, windows)

    def initializer(self) -> list[Any]:
        """Return the states before any row."""
        return self._initial.copy()

    def aggregator(self, key: Any, value: Sequence[Any], state: list[Any]) -> list[Any]:
        """Fold a row into ``state``, which is changed and returned.

        Args:
            key: the key of the row; for errors.
            value: the row's event time in microseconds, or bytes if rows are ordered, then one physical value for each
                call that has a column.
            state: the states of all calls.

        Raises:
            RecordError: a result leaves its type.
            SerdeError: ``value`` or ``state`` is not what this aggregation has written.
        """
        number = 0
        try:
            time = value[0]
            for number, place, step in self._adds:
                state[number] = step(state[number], value[place], time)
        except FailedFunction as error:
            raise self._failure(number, self._of(key), error) from error.__cause__
        except OverflowError as error:
            raise self._overflow(number, self._of(key), error) from error
        except _UNUSABLE as error:
            raise self._damage(number, self._of(key), error) from error
        return state

    def merger(self, key: Any, left: list[Any], right: list[Any]) -> list[Any]:
        """Return the states of the rows of both; at equal times those on the left count as arrived first.

        Raises:
            RecordError: a result leaves its type.
            SerdeError: a state is not what this aggregation has written.
        """
        number = 0
        merged = []
        try:
            for number, function in enumerate(self._staying):
                merged.append(function.merge(left[number], right[number]))
        except FailedFunction as error:
            raise self._failure(number, self._of(key), error) from error.__cause__
        except OverflowError as error:
            raise self._overflow(number, self._of(key), error) from error
        except _UNUSABLE as error:
            raise self._damage(number, self._of(key), error) from error
        return merged

    def results(self, states: Sequence[list[Any] | None], keys: Sequence[Any] = ()) -> pa.Table:
        """Return the results, one row for each of ``states``; None gives a row of nulls, so all columns are nullable.

        Args:
            states: the states.
            keys: the known keys of the states; for errors.

        Raises:
            RecordError: a result leaves its type.
            SerdeError: a state is not what this aggregation has written.
        """
        serde = self.state_serde
        data = pa.array([None if state is None else serde.serialize(state) for state in states], pa.binary())
        try:
            columns = serde.columns.read(data)
        except pa.ArrowInvalid as error:
            raise UnreadableRowError(f"some are no states of {serde.name}: {error}") from error
        schema = pa.schema([field.with_nullable(True) for field in self.schema])
        return pa.Table.from_arrays(self.results_of_columns(columns, keys), schema=schema)

    def results_of_columns(self, states: Any, keys: Sequence[Any] = ()) -> list[Any]:
        """Return ``results`` of states that are a column, null where there is none, as the columns of the table."""
        columns = states.storage.flatten()
        return self.of_each(lambda number: _result(self.functions[number], columns[number], states), keys)

    def of_each(self, make: Callable[[int], Any], keys: Sequence[Any] = ()) -> list[Any]:
        """Return a list of what ``make`` makes of each function's number.

        Args:
            make: makes an item of a number.
            keys: the known keys of the states; for errors.

        Raises:
            RecordError: a result leaves its type.
            SerdeError: a state is not what this aggregation has written.
        """
        where = self._of(keys[0]) if len(keys) == 1 else "for one of the keys"
        made = []
        number = 0
        try:
            for number in range(len(self.functions)):
                made.append(make(number))
        except FailedFunction as error:
            raise self._failure(number, where, error) from error.__cause__
        except OverflowError as error:
            raise self._overflow(number, where, error) from error
        except _UNUSABLE as error:
            raise self._damage(number, where, error) from error
        return made

    def state_of(self, results: pa.Table, alike: Mapping[str, Hashable] | None = None) -> bytes:
        """Return the state with the results of a table of one row, as it is stored.

        Args:
            results: the table.
            alike: by the names of results, something that is equal where they are of the same values of the same rows,
                if known: an average is then put beside the count of its values.

        Raises:
            ConfigurationError: the state of a call is more than its result, or no rows have such results.
        """
        given = {name: to_physical(results[name].combine_chunks())[0] for name in results.column_names}
        states = []
        for (name, result), function, label in zip(given.items(), self.functions, self._labels, strict=True):
            average = self._averages.get(name)
            try:
                if average is None:
                    states.append(function.state_of(result))
                else:
                    beside = self._beside(name, given, alike or {})
                    states.append(average.state_beside(result, beside.get("count"), beside.get("sum")))
            except ConfigurationError as error:
                counted = "" if average is None else ", or has had a count and a sum of the same column with it"
                raise EditRefusedError(
                    f"{label}: {error}, so it cannot be put; delete the key, which then begins anew, or put the row "
                    f"once the query runs without this call (dropped=[...]){counted}"
                ) from error
            except (ValueError, OverflowError) as error:
                raise EditRefusedError(f"{label}: {error}; put results that some rows have together") from error
        return self.state_serde.serialize(states)

    def _beside(self, name: str, given: Mapping[str, Any], alike: Mapping[str, Hashable]) -> dict[str, Any]:
        """Return, by function, the results that are of the same values as another one."""
        of = alike.get(name)
        return {self._called[one]: given[one] for one, other in alike.items() if of is not None and other == of}

    def whole(self, results: Sequence[Any], starts: Any) -> list[Any]:
        """Return results of windows: null where a window begins before the time from which rows count.

        Args:
            results: the columns of results.
            starts: the starts of the windows, in microseconds since 1970.
        """
        return [
            column
            if (since := self._since.get(field.name)) is None
            else pc.if_else(pc.greater_equal(starts, since), column, pa.scalar(None, column.type))
            for field, column in zip(self.schema, results, strict=True)
        ]

    def _of(self, key: Any) -> str:
        """Return the key, and the window if there is one, for errors."""
        return f"for {f'the key {key!r}' if self._keys is None else shown_key(self._keys, key)}"

    def _damage(self, number: int, where: str, error: Exception) -> UnreadableRowError:
        return UnreadableRowError(f"{self._labels[number]}: the state or the row {where} cannot be read: {error}")

    def _failure(self, number: int, where: str, error: FailedFunction) -> RecordError:
        return RecordError(f"{self._labels[number]}: {error}, {where}")

    def _overflow(self, number: int, where: str, error: OverflowError) -> RecordError:
        return InvalidValueError(
            f"{self._labels[number]}: {error}, {where}; cast the column to a wider type, or filter first"
        )


def check_any(calls: Mapping[str, AggregateCall]) -> None:
    """Refuse to compute nothing.

    Raises:
        ConfigurationError: there are no calls.
    """
    if not calls:
        raise MissingArgumentError("there is nothing to aggregate; give at least one call, such as {'n': count()}")


def _result(function: StatefulFunction, column: Any, states: Any) -> Any:
    """Return the results of a function by the column of its states; null where all states are."""
    results = function.results(column)
    if pa.types.is_nested(function.type):
        results = with_leaves(results, function.type, lambda leaves: leaves)
    if function.nullable or not states.null_count:
        return results
    return spread(results.filter(states.is_valid()), ~null_mask(states))


def _places(calls: Mapping[str, AggregateCall], shared: Mapping[str, str]) -> list[int]:
    """Return the place of each call's value in an input. Rows are counted by their times, which are never null."""
    brought = [name for name, call in calls.items() if call.takes_values and name not in shared]
    places = {name: place for place, name in enumerate(brought, start=1)}
    return [places.get(shared.get(name, name), 0) for name in calls]


def _unwrapped(type_: Any) -> pa.DataType:
    """Return the type of the only field of structs."""
    field: pa.DataType = type_.field(0).type
    return field
