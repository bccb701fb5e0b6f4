"""The calls of an aggregate, compared with those that its state has: what goes on, begins empty, or is forgotten.

Rule of this module: it knows how arguments of calls are written on Spark, and where calls are kept; what they may
become is decided in ``millpond.processors.verbs.kept_calls``.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame

from millpond.adapters.spark.job.options import moment_of
from millpond.adapters.spark.verbs.expressions import Expression
from millpond.adapters.spark.verbs.kept_schemas import Described
from millpond.adapters.spark.verbs.verb_run import VerbRun
from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors.verbs.aggregate import STORE
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.kept_calls import (
    Arguments,
    CallChanges,
    Calls,
    evolved_calls,
    first_calls,
    places_in,
    since_in,
    slots_of,
)
from millpond.processors.verbs.state_serde import Slots
from millpond.stores.durability.manifests.schema_log import Beside, schema_places
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.times import Instant
from millpond.stores.evolution.seeding import places_filled
from millpond.stores.evolution.shape import StoreShape
from millpond.stores.evolution.verbs import holds_state

Begin: TypeAlias = Instant | str | DataFrame | None
"""With what an added result begins: from which time on rows count, the rows so far, or None for nothing."""


def _follow(before: str, now: str) -> bool:
    return Expression.of_kept(now).follows(Expression.of_kept(before), {})


def _shown(argument: str) -> str:
    return str(Expression.of_kept(argument))


ARGUMENTS: Final = Arguments(_follow, _shown)


def arguments_of(rows: DataFrame, calls: Mapping[str, AggregateCall]) -> dict[str, str]:
    """The arguments of the calls as they are kept."""
    columns: dict[str, Any] = {name: call.column for name, call in calls.items() if call.column is not None}
    return {name: Expression.of(rows, column).kept for name, column in columns.items()}


class CallStates(NamedTuple):
    """What is known of the states of calls.

    Attributes:
        slots: where in the state of a verb they are; None if it begins with this run.
        since: by the names of results, the times from which rows count for them, in microseconds since 1970.
        filled: by the names of results, the places of states that got the rows so far when the state was carried over,
            or are to get them.
        new: the names of those that are to get them.
    """

    slots: Slots | None
    since: Mapping[str, int]
    filled: Mapping[str, int] = MappingProxyType({})
    new: Sequence[str] = ()


def added_calls(added: Collection[str] | Mapping[str, Begin], verb: str) -> Collection[str] | Mapping[str, int | None]:
    """What a user has added, with times in microseconds.

    Raises:
        ConfigurationError: something is no moment.
    """
    if isinstance(added, str):
        raise ConfigurationError(f"the verb {verb!r}: added is {added!r}; give a list of names, [{added!r}]")
    if not isinstance(added, Mapping):
        return added
    times = {name: None if isinstance(begin, DataFrame) else begin for name, begin in added.items()}
    return {name: moment_of(since, f"the verb {verb!r}: added[{name!r}]") for name, since in times.items()}


def histories_in(added: Collection[str] | Mapping[str, Begin]) -> dict[str, DataFrame]:
    """The rows so far of the results for which they are given."""
    begins = added if isinstance(added, Mapping) else {}
    return {name: begin for name, begin in begins.items() if isinstance(begin, DataFrame)}


def call_states(run: VerbRun, rows: Described, calls: Calls, changes: CallChanges, name: str) -> CallStates:
    """Where in the state of a verb those of its calls are, and since when.

    Args:
        run: the verb.
        rows: its input.
        calls: those that are wanted.
        changes: what the user says of them.
        name: of the serde of states that begin with these calls.

    Raises:
        ConfigurationError: something that the user says fits no call.
        StateConflictError: a call is not what it was, or is new or gone and nobody says so.
    """
    changes.check(calls, run.name)

    def first() -> pa.Schema:
        store, storage, application_id = _began_with(run), run.job.storage, run.job.begun_as
        place = Beside.CALLS.place(rows.role)
        # Calls that are kept, but are not those of any row, may become any others; so may those of no state.
        if store is None or place in schema_places(storage, application_id):
            return first_calls(calls)
        if holds_state(storage, application_id):
            _check_unknown(run.name, store, name)
        return first_calls(calls)

    newest = run.began.newest if run.streaming else None
    filled = frozenset[int]() if newest is None else places_filled(STORE, newest)
    known = set[int]()

    def evolved(before: Schemas) -> Schemas:
        known.update(places_in(before).values())
        return evolved_calls(before, calls, changes, run.name, ARGUMENTS, filled)

    history = run.schemas.beside(rows, Beside.CALLS, first, evolved)
    if history is None:
        return CallStates(None, {})
    store = _began_with(run)
    slots = slots_of(history, name if store is None else store.value_serde, filled)
    places = places_in(history)
    new = [one for one in calls if one in changes.filled and known and places[one] not in known]
    whole = {one: place for one, place in places.items() if place in filled or one in new}
    return CallStates(slots, since_in(history.current), whole, new)


def _began_with(run: VerbRun) -> StoreShape | None:
    """The store of the verb's state as it is recorded; None if there is none yet."""
    newest = run.began.newest
    return None if newest is None else next(iter(newest.shape.named(STORE)), None)


def _check_unknown(verb: str, store: StoreShape, name: str) -> None:
    """Refuse states of others where nothing tells which calls they are of."""
    if store.value_serde != name:
        raise StateConflictError(
            f"the verb {verb!r} has calls with the states {name!r}, but its state has {store.value_serde!r}, and was "
            "written by a build that kept no names of calls; start it with the calls that it had, and change them once "
            "a micro-batch has come"
        )
