"""The column of a verb's aggregates: the results of the states that are kept, as a struct.

Rule of this module: all that is known of the functions are the names of their states, which say what the bytes depend
on (``millpond.processors.verbs.binding``). So integers are of 64 bits, and the fields of structs have
numbers. Results have the names that the user gave, which are kept beside the state; where nothing is kept, as by
earlier builds, those of the functions.
"""

import re
from ast import literal_eval
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from millpond.adapters.inspect.agreeing_results import check_agree, values_in
from millpond.adapters.inspect.columns import ShownColumn
from millpond.adapters.inspect.packed_columns import columns_in, packed_of
from millpond.errors import InvalidArgumentError
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.kept_calls import ORDERED, calls_in, since_in, slots_of
from millpond.processors.verbs.row_aggregate import STATE_VERSION, RowAggregate
from millpond.stores.encoding.rows.schemas import Schemas

_PREFIX: Final = f"aggregate-state-{STATE_VERSION}: "
_ORDERED: Final = "ordered; "
_CALL: Final = re.compile(r"(\w+)\((.+)\)")
_NESTED: Final = re.compile(r"(list|map|struct|decimal)[<(](.*)[>)]")
_LEAVES: Final[Mapping[str, pa.DataType]] = {
    "int": pa.int64(),
    "float": pa.float64(),
    **{
        str(type_): type_
        for type_ in (
            pa.bool_(),
            pa.string(),
            pa.binary(),
            pa.date32(),
            pa.time64("us"),
            pa.timestamp("us"),
            pa.timestamp("us", "UTC"),
            pa.duration("us"),
            pa.null(),
        )
    },
}
_ANY: Final = "column"


class AggregatedColumn(ShownColumn):
    """The results of aggregates.

    Args:
        name: of the serde of their states.
        calls: the history of the calls; None if nothing is kept of them.

    Raises:
        ConfigurationError: it is not the name of one that this release knows.
    """

    type: pa.StructType

    def __init__(self, name: str, calls: Schemas | None = None) -> None:
        self._name = name
        self._calls = calls
        self._aggregate = _of_serde(name) if calls is None else _of_calls(name, calls)
        self.serde = name if calls is None else _serde_of(name, calls)
        self.type = pa.struct([field.with_nullable(True) for field in self._aggregate.schema])

    def __reduce__(self) -> Any:
        return AggregatedColumn, (self._name, self._calls)

    def read(self, data: Sequence[bytes]) -> Any:
        results = self._aggregate.results(self._aggregate.state_serde.deserialize_many(data))
        columns = [column.combine_chunks() for column in results.columns]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))

    def read_in(self, data: Sequence[bytes], starts: Sequence[int]) -> Any:
        whole = self._aggregate.whole(self.read(data).flatten(), pa.array(starts, pa.int64()))
        return pa.StructArray.from_arrays(whole, fields=list(self.type))

    def pack(self, value: Any) -> bytes:
        return packed_of(pa.schema(list(self.type)), value, "result", self._state_of)

    def parse(self, text: str) -> Any:
        return columns_in(pa.schema(list(self.type)), text, "result")

    def _state_of(self, results: pa.Table) -> bytes:
        if self._calls is None:
            return self._aggregate.state_of(results)
        alike = {name: of for name, of in values_in(self._calls).items() if of.argument is not None}
        state = self._aggregate.state_of(results, alike)
        check_agree(results, self._calls)
        return state


def _of_calls(name: str, history: Schemas) -> RowAggregate:
    """Return the functions of the newest calls of a history."""
    found = calls_in(history.current)
    parts = {result: call_of(call.state.removeprefix(ORDERED)) for result, call in found.items()}
    calls = {result: call for result, (call, _) in parts.items()}
    types = {result: type_ for result, (_, type_) in parts.items() if type_ is not None}
    ordered = any(call.state.startswith(ORDERED) for call in found.values())
    return RowAggregate(calls, types, ordered=ordered, slots=slots_of(history, name), since=since_in(history.current))


def _serde_of(name: str, history: Schemas) -> str:
    """Return the name of the serde of states of the newest calls, which the name of the first ones begins as."""
    head = _PREFIX + _ORDERED * name.startswith(_PREFIX + _ORDERED)
    return head + "; ".join(call.state.removeprefix(ORDERED) for call in calls_in(history.current).values())


def _of_serde(name: str) -> RowAggregate:
    """Return the functions that the name of a serde tells of.

    >>> _of_serde("aggregate-state-1: count(null); sum(decimal(10, 2)); sum(int)").schema.names
    ['count', 'sum', 'sum_2']
    """
    calls: dict[str, AggregateCall] = {}
    types: dict[str, pa.DataType] = {}
    seen: Counter[str] = Counter()
    for text in name.removeprefix(_PREFIX).split("; ") if name.startswith(_PREFIX) else ():
        call, type_ = call_of(text)
        seen[call.function] += 1
        label = call.function if seen[call.function] == 1 else f"{call.function}_{seen[call.function]}"
        calls[label] = call
        types |= {} if type_ is None else {label: type_}
    made = RowAggregate(calls, types)
    if made.state_serde.name != name:
        raise InvalidArgumentError(f"{name!r} is not the name of an aggregate that this release knows")
    return made


def call_of(state: str) -> tuple[AggregateCall, pa.DataType | None]:
    """Return the call whose state has that name, and the type of its column, if it has one."""
    call = _CALL.fullmatch(state)
    if call is None:
        raise InvalidArgumentError(f"no state of an aggregate is called {state!r}")
    function, (type_, *options) = call[1], list(_parts(call[2]))
    if (function, type_) == ("count", "null"):
        return AggregateCall(function), None
    return AggregateCall(function, _ANY, dict(map(_option, options))), _type(type_)


def _type(name: str) -> pa.DataType:
    """Return a type with the physical form of that name.

    >>> _type("map<string, list<int>>")
    MapType(map<string, list<item: int64>>)
    """
    nested = _NESTED.fullmatch(name)
    if nested is None:
        if name not in _LEAVES:
            raise InvalidArgumentError(f"no type has a physical form called {name!r}")
        return _LEAVES[name]
    kind, parts = nested[1], list(_parts(nested[2]))
    if kind == "decimal":
        return pa.decimal128(*map(int, parts))
    inner = list(map(_type, parts))
    if kind == "struct":
        return pa.struct([(str(number), type_) for number, type_ in enumerate(inner)])
    return pa.list_(*inner) if kind == "list" else pa.map_(*inner)


def _option(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise InvalidArgumentError(f"{text!r} is no option of an aggregate function: {error}") from error


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a text between commas; commas within brackets do not count."""
    start = depth = 0
    for place, character in enumerate(text):
        depth += (character in "<([") - (character in ">)]")
        if character == "," and not depth:
            yield text[start:place]
            start = place + 2
    if text:
        yield text[start:]
