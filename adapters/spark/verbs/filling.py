"""Added results of an aggregate that get the rows so far, from a static DataFrame, when the verb is called.

Rule of this module: it checks that the rows are those of the verb's input, and says what is folded into what.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from millpond.adapters.spark.evolution.filled import sow_past
from millpond.adapters.spark.rows.event_times import EventTimes
from millpond.adapters.spark.verbs.arguments import aggregated_input
from millpond.adapters.spark.verbs.calls import CallStates
from millpond.adapters.spark.verbs.inputs import RowInput
from millpond.adapters.spark.verbs.source import RowSource
from millpond.adapters.spark.verbs.verb_run import VerbRun
from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.verbs.aggregate import STORE, AggregatedRows, WindowedKeys
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.rekeying.past_rows import PastRows
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.processors.verbs.state_serde import StateSerde
from millpond.processors.verbs.verb import Verb
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.evolution.seeding import Filling, Sow, place_mark


def past_rows(plan: Plan, verb: Verb, calls: RowAggregate, states: StateSerde, places: tuple[int, ...]) -> PastRows:
    """What is folded into the state of an aggregate.

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
    """What evolves with the state of a verb: the places of results that got, or are to get, the rows so far.

    Args:
        verb: the verb's name.
        states: where the states of its calls are.
        sow: writes those that are new.
    """
    marks = {place_mark(STORE, place): name for name, place in states.filled.items()}
    new = frozenset(mark for mark, name in marks.items() if name in states.new)
    return Filling(frozenset(marks), sow, new, verb, marks)


def check_history(run: VerbRun, histories: Mapping[str, DataFrame], states: CallStates, *, expires: bool) -> DataFrame:
    """The rows so far of the results that are to get them.

    Raises:
        ConfigurationError: they are streaming, or not the same for all, or the state does not say since when a key has
            the result that it has.
        StateConflictError: nothing says where the query stands.
    """
    said, evolution = f"the verb {run.name!r}: added[{states.new[0]!r}]", run.job.options.evolution
    history = histories[states.new[0]]
    if history.isStreaming:
        raise ConfigurationError(f"{said} is a streaming DataFrame; give a static one, with the rows so far")
    if any(histories[name] is not history for name in states.new):
        raise ConfigurationError(
            f"the verb {run.name!r}: added gives {', '.join(map(repr, states.new))} different DataFrames; give all of "
            "them the same one, with the rows so far"
        )
    if expires:
        raise ConfigurationError(
            f"{said} is a DataFrame, and the verb has a ttl: its state does not say which rows a key has had since it "
            f"last expired; write added={list(states.new)} and let them begin empty, or give the verb another name, "
            "drop the old one, and backfill it from the rows themselves, with pond.backfill()"
        )
    if evolution is None or not evolution.tells_of(run.name):
        raise StateConflictError(
            f"{said} is a DataFrame with the rows so far, which is folded into the state from where the checkpoint "
            "stands; write Millpond(..., evolution=Evolution(checkpoint)), with the query's checkpointLocation"
        )
    return history


def filling_of(
    run: VerbRun,
    verb: Verb,
    states: CallStates,
    bound: RowAggregate,
    source: RowInput,
    calls: Mapping[str, AggregateCall],
    histories: Mapping[str, DataFrame],
    *,
    time: str | Column,
    order: str | Column | None,
    expires: bool,
) -> Callable[[Plan], Filling] | None:
    """What the state of an aggregate gets once it is carried over, for a plan; None for nothing, ever.

    Args:
        run: the verb on its way.
        verb: the verb.
        states: where the states of its calls are.
        bound: its calls.
        source: its input.
        calls: what the user gave.
        histories: the rows so far, by the name of the result.
        time, order: as the user gave them.
        expires: whether results have a time to live.

    Raises:
        ConfigurationError: the rows so far are no rows of the verb's input, or nothing can be made of them.
        StateConflictError: nothing says where the query stands.
    """
    if not (run.streaming and states.filled):
        return None
    if not states.new:
        return lambda plan: filling(run.name, states, lambda sowing: {})
    history = check_history(run, histories, states, expires=expires)
    chosen = {name: calls[name] for name in states.new}
    past = aggregated_input(history, source.keys, time, chosen, order)
    _check_columns(run.name, states, past, source)
    types = past.schema(past.values)
    made = RowAggregate(chosen, {name: types.field(name).type for name in past.values}, ordered=order is not None)
    packed = verb.inputs[source.role]
    assert isinstance(packed, AggregatedRows)
    packed = replace(packed, arguments=past.values, types=made.arguments, in_order=past.in_order)
    options = run.job.options
    read = RowSource(
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
            raise ConfigurationError(
                f"the verb {verb!r}: added[{states.new[0]!r}] has the {what} {_listed(there)}, and the rows that come "
                f"have {_listed(wanted)}; cast the columns of the former"
            )


def _listed(columns: pa.Schema) -> str:
    return ", ".join(f"{column.name}: {column.type}" for column in columns)
