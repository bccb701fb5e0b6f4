"""The columns of an aggregate of a change feed: the rows with the groups that they are in, and the results of groups.

Rule of this module: both are shown, and not put: results are those of the rows that are there, and a row is in its
groups.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond.adapters.inspect.aggregated_column import call_of
from millpond.adapters.inspect.columns import ShownColumn
from millpond.errors import ConfigurationError, EditRefusedError
from millpond.processors.verbs.feeds.group_aggregate import GroupAggregate
from millpond.processors.verbs.feeds.shown_rows import ShownRows
from millpond.processors.verbs.kept_calls import ORDERED, calls_in, slots_of
from millpond.processors.verbs.verb import INSTANT
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec


def groups_of(calls: Schemas) -> GroupAggregate:
    """Return the functions of the newest calls of a history.

    Raises:
        ConfigurationError: this release, or what is installed, does not know one.
    """
    found, types = {}, {}
    kept = calls_in(calls.current)
    for name, one in kept.items():
        call, type_ = call_of(one.state.removeprefix(ORDERED))
        found[name] = call if one.where is None else replace(call, where=one.where)
        if type_ is not None:
            types[name] = pa.struct([("value", type_)]) if found[name].wraps else type_
    ordered = any(one.state.startswith(ORDERED) for one in kept.values())
    return GroupAggregate(found, types, ordered=ordered, slots=slots_of(calls, "groups"))


class _Shown(ShownColumn):
    def parse(self, text: str) -> Any:
        raise _refusal()

    def pack(self, value: Any) -> bytes:
        raise _refusal()


class GroupColumn(_Shown):
    """The results of groups.

    Args:
        calls: the history of the calls.

    Raises:
        ConfigurationError: this release, or what is installed, does not know one.
    """

    type: pa.StructType

    def __init__(self, calls: Schemas) -> None:
        self._calls = calls
        self._aggregate = groups_of(calls)
        self.type = pa.struct([field.with_nullable(True) for field in list(self._aggregate.schema)[1:]])

    def __reduce__(self) -> Any:
        return GroupColumn, (self._calls,)

    def read(self, data: Sequence[bytes]) -> Any:
        results = self._aggregate.results(self._aggregate.state_serde.deserialize_many(data))
        columns = [column.combine_chunks() for column in results.columns[1:]]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))


class FeedRowColumn(_Shown):
    """The rows.

    Args:
        groups: reads the keys of their groups.
        calls: the history of the calls.

    Raises:
        ConfigurationError: this release, or what is installed, does not know one.
    """

    type: pa.StructType

    def __init__(self, groups: KeyCodec, calls: Schemas) -> None:
        self._given = groups, calls
        self._rows = ShownRows(groups, groups_of(calls), INSTANT)
        self.type = pa.struct(list(self._rows.schema))

    def __reduce__(self) -> Any:
        return FeedRowColumn, self._given

    def read(self, data: Sequence[bytes]) -> Any:
        return pa.StructArray.from_arrays(self._rows.of_values(data), fields=list(self.type))


def _refusal() -> ConfigurationError:
    return EditRefusedError(
        "the rows of a change feed and the results of their groups belong together, so neither can be put"
    )
