"""The calls of a verb, compared with those that its state has: what goes on, begins empty, or is forgotten.

Rule of this module: it knows how arguments of calls are written on Spark, and where calls are kept; what they may
become is decided in ``millpond.processors.verbs.kept_calls``. Of rows so far that results get it checks that they are
those of the verb's input, and says what is folded into what.
"""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from millpond.adapters.spark.evolution.seeds import sow_past
from millpond.adapters.spark.evolution.verb_evolution import check_feed_state
from millpond.adapters.spark.verbs.arguments import rows_with_gap
from millpond.adapters.spark.verbs.frame_rows import FrameRows
from millpond.adapters.spark.verbs.frames.expressions import Expression
from millpond.adapters.spark.verbs.frames.inputs import RowInput
from millpond.adapters.spark.verbs.frames.verb_run import VerbRun
from millpond.adapters.spark.verbs.runner import VerbStart
from millpond.errors import (
    ArgumentConflictError,
    CallChangedError,
    ChangeFeedError,
    ColumnTypeError,
    InvalidEvolutionError,
    StreamingOrStaticError,
    UnrecordedStateError,
)
from millpond.processors.calls.arguments import moment_of
from millpond.processors.calls.readings import Packing, Reading
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.rows.event_times import EventTimes
from millpond.processors.rows.row_source import RowSource
from millpond.processors.verbs.aggregate import STORE, AggregatedRows, WindowedKeys, Windows
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.aggregates.call import shared_columns
from millpond.processors.verbs.encoding.state_serde import Slots, StateSerde
from millpond.processors.verbs.feeds.feed_aggregate import GROUPS
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
from millpond.processors.verbs.rekeying.past_rows import PastRows
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.processors.verbs.verb import Verb
from millpond.stores.durability.manifests.schema_log import Beside, schema_places
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.times import Instant, TimeUnit
from millpond.stores.evolution.seeding import Filling, Sow, place_mark, places_filled
from millpond.stores.evolution.shape import StoreShape
from millpond.stores.evolution.verbs.declarations import holds_state

Begin: TypeAlias = Instant | str | DataFrame | None
"""The beginning of an added result: the time from which rows count, the rows so far, or None for nothing."""


def _follow(renamed: Mapping[str, str], before: str, now: str) -> bool:
    return Expression.of_kept(now).follows(Expression.of_kept(before), renamed)


def _shown(argument: str) -> str:
    return str(Expression.of_kept(argument))


def _arguments(renamed: Mapping[str, str]) -> Arguments:
    """Return how arguments are shown, and compared with earlier ones.

    Args:
        renamed: by the names that columns had, those that they have now.
    """
    return Arguments(partial(_follow, renamed), _shown)


def arguments_of(rows: DataFrame, calls: Mapping[str, AggregateCall]) -> dict[str, str]:
    """Return the arguments of the calls as they are kept."""
    columns: dict[str, Any] = {name: call.column for name, call in calls.items() if call.column is not None}
    return {name: Expression.of(rows, column).kept for name, column in columns.items()}


def seconds_of(rows: DataFrame, calls: Mapping[str, AggregateCall]) -> dict[str, str]:
    """Return the second columns of the calls that have two, as they are kept."""
    columns: dict[str, Any] = {name: call.second for name, call in calls.items() if call.second is not None}
    return {name: Expression.of(rows, column).kept for name, column in columns.items()}


def conditions_of(rows: DataFrame, calls: Mapping[str, AggregateCall]) -> dict[str, str]:
    """Return the conditions of the calls as they are kept: text as it was given, so that messages can quote it."""
    given: dict[str, Any] = {name: call.where for name, call in calls.items() if call.where is not None}
    return {name: Expression.of(rows, where).kept for name, where in given.items()}


class CallStates(NamedTuple):
    """The states of calls: their places, and the rows that they count.

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


def check_added(added: object) -> None:
    """Refuse what is no collection of names.

    Raises:
        ConfigurationError: so it is.
    """
    if not isinstance(added, Mapping | list | tuple | Set) or not all(isinstance(one, str) for one in added):
        listed = [added] if isinstance(added, str) else ["total"]
        raise InvalidEvolutionError(f"added is {added!r}; give a list of names, such as {listed!r}")


def added_calls(added: Collection[str] | Mapping[str, Begin], verb: str) -> Collection[str] | Mapping[str, int | None]:
    """Return the calls that a user has added, with times in microseconds.

    Raises:
        ConfigurationError: something is no moment.
    """
    if not isinstance(added, Mapping):
        return added
    times = {name: None if isinstance(begin, DataFrame) else begin for name, begin in added.items()}
    return {name: moment_of(since, f"the verb {verb!r}: added[{name!r}]") for name, since in times.items()}


def histories_in(added: Collection[str] | Mapping[str, Begin]) -> dict[str, DataFrame]:
    """Return the rows so far of the results for which they are given."""
    begins = added if isinstance(added, Mapping) else {}
    return {name: begin for name, begin in begins.items() if isinstance(begin, DataFrame)}


def call_states(
    run: VerbRun, rows: Reading, calls: Calls, changes: CallChanges, name: str, store: str = STORE
) -> CallStates:
    """Return the places of the calls' states in the state of a verb, and since when they count.

    Args:
        run: the verb.
        rows: its input.
        calls: those that are wanted.
        changes: what the user says of them.
        name: of the serde of states that begin with these calls.
        store: which has them.

    Raises:
        ConfigurationError: something that the user says fits no call.
        StateConflictError: a call has changed, or is new or gone without a declaration.
    """
    changes.check(calls, run.name)

    def first() -> pa.Schema:
        begun, storage, application_id = _began_with(run, store), run.job.storage, run.job.begun_as
        place = Beside.CALLS.place(rows.role)
        # Kept calls that no row has may become any others; so may calls without state.
        if begun is None or place in schema_places(storage, application_id):
            return first_calls(calls)
        if holds_state(storage, application_id):
            _check_unknown(run.name, begun, name)
        return first_calls(calls)

    # Those of all generations: one from before, at which a query stands that was set back, is the newest once edited.
    records = run.began.records if run.streaming else ()
    filled = frozenset(place for record in records for place in places_filled(store, record))
    known = set[int]()

    def evolved(before: Schemas) -> Schemas:
        known.update(places_in(before).values())
        return evolved_calls(before, calls, changes, run.name, _arguments(run.schemas.changes.renamed), filled)

    history = run.schemas.beside(rows, Beside.CALLS, first, evolved)
    if history is None:
        return CallStates(None, {})
    begun = _began_with(run, store)
    slots = slots_of(history, name if begun is None else begun.value_serde, filled)
    places = places_in(history)
    new = [one for one in calls if one in changes.filled and known and places[one] not in known]
    whole = {one: place for one, place in places.items() if place in filled or one in new}
    return CallStates(slots, since_in(history.current), whole, new)


def _began_with(run: VerbRun, store: str) -> StoreShape | None:
    """Return a store of the verb's state as it is recorded; None if there is none yet."""
    newest = run.began.newest
    return None if newest is None else next(iter(newest.shape.named(store)), None)


def _check_unknown(verb: str, store: StoreShape, name: str) -> None:
    """Refuse states of others where nothing tells which calls they are of."""
    if store.value_serde != name:
        raise UnrecordedStateError(
            f"the verb {verb!r} has calls with the states {name!r}, but its state has {store.value_serde!r}, and was "
            "written by a build that kept no names of calls; start it with the calls that it had, and change them once "
            "a micro-batch has come"
        )


def past_rows(plan: Plan, verb: Verb, calls: RowAggregate, states: StateSerde, places: tuple[int, ...]) -> PastRows:
    """Return what is folded into the state of an aggregate.

    Args:
        plan: what runs.
        verb: the aggregate.
        calls: those that get the rows.
        states: the states of all calls.
        places: where those of ``calls`` are.
    """
    ((store,), keys) = shape_of(plan).named(STORE), verb.parts[0]
    windows = keys.windows if isinstance(keys, WindowedKeys) else None
    return PastRows(store, plan.partitions, windows, calls, states, places)


def filling(verb: str, states: CallStates, sow: Sow) -> Filling:
    """Return how the state of a verb evolves: the places of results that got, or are to get, the rows so far.

    Args:
        verb: the verb's name.
        states: where the states of its calls are.
        sow: writes those that are new.
    """
    marks = {place_mark(STORE, place): name for name, place in states.filled.items()}
    new = frozenset(mark for mark, name in marks.items() if name in states.new)
    return Filling(frozenset(marks), sow, new, verb, marks)


def check_history(run: VerbRun, histories: Mapping[str, DataFrame], states: CallStates, *, expires: bool) -> DataFrame:
    """Return the rows so far of the results that are to get them.

    Raises:
        ConfigurationError: they are streaming, or not the same for all, or the state does not say since when a key has
            the result that it has.
        StateConflictError: nothing says where the query stands.
    """
    said, evolution = f"the verb {run.name!r}: added[{states.new[0]!r}]", run.job.options.evolution
    history = histories[states.new[0]]
    if history.isStreaming:
        raise StreamingOrStaticError(f"{said} is a streaming DataFrame; give a static one, with the rows so far")
    if any(histories[name] is not history for name in states.new):
        raise ArgumentConflictError(
            f"the verb {run.name!r}: added gives {', '.join(map(repr, states.new))} different DataFrames; give all of "
            "them the same one, with the rows so far"
        )
    if expires:
        raise ArgumentConflictError(
            f"{said} is a DataFrame, and the verb has a ttl: its state does not say which rows a key has had since it "
            f"last expired; write added={list(states.new)} and let them begin empty, or give the verb another name, "
            "drop the old one, and backfill it from the rows themselves, with pond.backfill()"
        )
    if evolution is None or not evolution.tells_of(run.name):
        raise CallChangedError(
            f"{said} is a DataFrame with the rows so far, which is folded into the state from where the checkpoint "
            "stands; write Millpond(..., evolution=Evolution(checkpoint)), with the query's checkpointLocation"
        )
    return history


@dataclass
class StatesOfCalls:
    """Binds the calls of an aggregate to the states that it has of them.

    Attributes:
        start: of the verb, which has begun when calls are bound.
        rows, calls, added, renamed, dropped: as the user gave them.
        states: where the states of the calls are, once they are bound.
        bound: the calls, once they are bound.
    """

    start: VerbStart
    rows: DataFrame
    calls: Mapping[str, AggregateCall]
    added: Collection[str] | Mapping[str, Begin]
    renamed: Mapping[str, str]
    dropped: Collection[str]
    states: CallStates = field(init=False)
    bound: RowAggregate = field(init=False)

    def __post_init__(self) -> None:
        check_added(self.added)

    def begin(self, name: str, inputs: Sequence[RowInput]) -> Packing:
        """Return the packing of the verb's rows, once its state is known to be of rows of their kind.

        Raises what ``VerbStart`` raises.

        Raises:
            StateConflictError: the state counts changes as rows, and these are a change feed.
        """
        packing = self.start(name, inputs)
        run = self.start.run
        newest = run.began.newest if run.streaming else None
        check_feed_state(name, None if newest is None else newest.shape, feed=inputs[0].op is not None)
        return packing

    def __call__(self, bind: Callable[..., RowAggregate]) -> RowAggregate:
        """Return the calls, bound to the places of their states.

        Raises what ``call_states`` raises.

        Raises:
            ConfigurationError: a result over a change feed is to begin with a time, or with rows so far.
        """
        run, rows, calls, first = self.start.run, self.rows, self.calls, bind()
        added, histories = added_calls(self.added, run.name), histories_in(self.added)
        of_feed = run.inputs[0].op is not None
        if of_feed:
            _check_begin(run.name, self.added)
        changes = CallChanges(added, self.renamed, self.dropped, histories)
        kept = first.kept(arguments_of(rows, calls), conditions_of(rows, calls), seconds_of(rows, calls))
        store = GROUPS if of_feed else STORE
        self.states = call_states(run, run.inputs[0], kept, changes, first.state_serde.name, store)
        self.bound = bind(slots=self.states.slots, **({} if of_feed else {"since": self.states.since}))
        return self.bound

    def filling(
        self, verb: Verb, *, time: str | Column, order: str | Column | None, window: Windows | None, expires: bool
    ) -> Callable[[Plan], Filling] | None:
        """Return what the state gets once it is carried over, as ``filling_of`` says.

        Raises:
            ConfigurationError, StateConflictError: as it does.
        """
        return filling_of(
            self.start.run,
            verb,
            self.states,
            self.bound,
            self.calls,
            histories_in(self.added),
            time=time,
            order=order,
            window=window,
            expires=expires,
        )


def _check_begin(verb: str, added: Collection[str] | Mapping[str, Begin]) -> None:
    """Refuse results over a change feed that are to begin with anything: rows that are there change, and go.

    Raises:
        ConfigurationError: there is one.
    """
    begun = [name for name, begin in (added.items() if isinstance(added, Mapping) else ()) if begin is not None]
    if begun:
        raise ChangeFeedError(
            f"the verb {verb!r}: added[{begun[0]!r}] says with what it begins, but the rows are a change feed: a row "
            f"counts for it from its next change on; write added={list(added)}, or give a verb with that result "
            "another name, which begins with the rows of the feed that come from then on"
        )


def filling_of(
    run: VerbRun,
    verb: Verb,
    states: CallStates,
    bound: RowAggregate,
    calls: Mapping[str, AggregateCall],
    histories: Mapping[str, DataFrame],
    *,
    time: str | Column,
    order: str | Column | None,
    window: Windows | None,
    expires: bool,
) -> Callable[[Plan], Filling] | None:
    """Return the function that gives what an aggregate's state gets once it is carried over; None for nothing, ever.

    Args:
        run: the verb on its way.
        verb: the verb.
        states: where the states of its calls are.
        bound: its calls.
        calls: what the user gave.
        histories: the rows so far, by the name of the result.
        time, order, window: as the user gave them.
        expires: whether results have a time to live.

    Raises:
        ConfigurationError: the rows so far are no rows of the verb's input, or nothing can be made of them.
        StateConflictError: nothing says where the query stands.
    """
    (source,) = run.inputs
    if not (run.streaming and states.filled):
        return None
    if not states.new:
        return lambda plan: filling(run.name, states, lambda sowing: {})
    history = rows_with_gap(check_history(run, histories, states, expires=expires), window)
    chosen = {name: calls[name] for name in states.new}
    past = FrameRows(history).aggregated(source.keys, time, chosen, order if source.ordered else None)
    _check_columns(run.name, states, past, source)
    types = past.schema(past.values)
    brought, shared = {name: types.field(name).type for name in past.values}, shared_columns(chosen)
    made = RowAggregate(chosen, brought, ordered=order is not None, shared=shared)
    packed = verb.inputs[source.role]
    assert isinstance(packed, AggregatedRows)
    # Rows have no gaps here: those that are in no session have been left out.
    packed = replace(
        packed, arguments=past.values, shared=shared, types=made.arguments, in_order=past.in_order, most={}, gap=None
    )
    options = run.job.options
    read = RowSource(
        run.name,
        packed,
        ", ".join(past.keys),
        str(time),
        "None",
        EventTimes(TimeUnit.MICROSECOND, options.max_ahead),
        None,
        options.on_error,
    )
    places = tuple(states.filled[name] for name in states.new)

    def made_for(plan: Plan) -> Filling:
        folded = past_rows(plan, verb, made, bound.state_serde, places)
        return filling(run.name, states, sow_past(folded, read, past.selected()))

    return made_for


def _check_columns(verb: str, states: CallStates, past: RowInput, source: RowInput) -> None:
    """Refuse rows whose key, time or arguments are of other types than those that come."""
    pairs = [("key", past.key_schema(past.keys), source.key_schema(source.keys))]
    pairs.append(("arguments", past.schema(past.values), source.schema(past.values)))
    pairs.append(("time", pa.schema([("time", past.times)]), pa.schema([("time", source.times)])))
    if source.ordered:
        pairs.append(("order", past.order_schema(), source.order_schema()))
    for what, there, wanted in pairs:
        if there.types != wanted.types:
            raise ColumnTypeError(
                f"the verb {verb!r}: added[{states.new[0]!r}] has the {what} {_listed(there)}, and the rows that come "
                f"have {_listed(wanted)}; cast the columns of the former"
            )


def _listed(columns: pa.Schema) -> str:
    return ", ".join(f"{column.name}: {column.type}" for column in columns)
