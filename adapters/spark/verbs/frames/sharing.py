"""The choice of the verbs of a chain that share an operator.

A verb shares the operator of the verb before it if both are by the same columns, Arrow evaluates what lies between, and
the time of the one is a time of the other, or does not matter. Then no shuffle, no Python process of its own and no
commit of Spark's lies between them. One that has begun in an operator of its own stays there, and one that has begun in
a shared one, too, since Spark's checkpoint knows operators by their number.

Rule of this module: it decides, and starts nothing. ``between`` tells it what lies between two verbs. What it does
not know for certain, it leaves to Spark.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import pyarrow as pa

from millpond.adapters.spark.rows.arrow_expressions import Call, Column, Expression, Field, Rows
from millpond.adapters.spark.rows.names import written
from millpond.adapters.spark.verbs.frames.shared_flow import InputOfVerb, SharedVerb
from millpond.errors import VerbChangedError
from millpond.processors.calls.account import Account, Path
from millpond.processors.distribution.plan import Plan
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.verb import Input, Verb
from millpond.stores.evolution.verbs.declarations import declaration


@dataclass(frozen=True)
class Projection:
    """The projection of one verb's result to an input of the next one. Travels to the workers.

    Attributes:
        conditions: what all rows of the input fulfill.
        columns: the columns of the input's prepared rows, by name.
    """

    conditions: Sequence[Expression]
    columns: Mapping[str, Expression]

    def rows(self, results: pa.Table) -> pa.Table:
        """Return the prepared rows, of rows of the result."""
        for condition in self.conditions:
            results = results.filter(Rows(results).column(condition))
        rows = Rows(results)
        return pa.table({name: rows.column(value) for name, value in self.columns.items()})


@dataclass(frozen=True)
class Columns:
    """The columns of an input, in those of the result of a verb.

    Attributes:
        keys: of its key.
        time: its time.
        projection: what its prepared rows are made of.
    """

    keys: Sequence[Expression]
    time: Expression
    projection: Projection

    @property
    def no_null_keys(self) -> bool:
        """True if the conditions leave no row with a null in its key."""
        present = [one.arguments[0] for one in self.projection.conditions if _is_call(one, "is not null")]
        return all(any(key is one for one in present) for key in self.keys)


@dataclass(frozen=True)
class Result:
    """The result of a verb behind which others may share its operator.

    Attributes:
        verbs: the verbs of the operator, this one last.
        keys: the columns of its key.
        account: what is known of its times.
        no_null_keys: whether no row of it has a null in its key.
    """

    verbs: Sequence[SharedVerb]
    keys: Sequence[str]
    account: Account
    no_null_keys: bool

    @property
    def verb(self) -> SharedVerb:
        """The verb."""
        return self.verbs[-1]

    @property
    def schema(self) -> pa.Schema:
        """Its columns as they travel."""
        return self.verb.sink.rows.schema


class UnfitError(Exception):
    """The verb does not share the operator; the message says why."""


@dataclass(frozen=True)
class Behind:
    """An input that is made of the result of a verb.

    Attributes:
        keys: what the input calls the columns of its key.
        result: the result.
        columns: tells its columns, or raises ``UnfitError`` if something lies between that Arrow does not evaluate.
    """

    keys: Sequence[str]
    result: Result
    columns: Callable[[], Columns]


@dataclass(frozen=True)
class Shared:
    """The operator that a verb shares with those before it.

    Attributes:
        inputs: by topic, the inputs of the verb that they make; none if it has an operator of its own.
        verbs: they and those whose operator they share, each behind those whose results it takes.
        told: what is to say of the operator; None for nothing.
    """

    inputs: Mapping[str, InputOfVerb] = field(default_factory=dict)
    verbs: Sequence[SharedVerb] = ()
    told: str | None = None

    def __bool__(self) -> bool:
        return bool(self.inputs)

    @property
    def names(self) -> tuple[str, ...]:
        """The verbs whose results it takes."""
        return tuple(sorted({one.verb for one in self.inputs.values()}))

    @property
    def partitions(self) -> int:
        """The number of tasks of each verb."""
        return self.verbs[0].flow.runs.plan.partitions


def shared_by(
    plan: Plan, behind: Mapping[str, Behind], verb: Verb, began: Collection[str] | None, apart: str | None
) -> Shared:
    """Return the operator that a verb shares.

    Args:
        plan: the verb's.
        behind: by topic, its inputs that are made of the results of others.
        verb: the verb.
        began: behind which verbs it has begun in their operator; None if it has not begun.
        apart: why it is not to share one; None if it may.

    Raises:
        StateConflictError: it has begun there, and cannot go on there.
    """
    found: dict[str, InputOfVerb] = {}
    reasons = []
    for topic, one in behind.items():
        try:
            if apart is not None:
                raise UnfitError(apart)
            if began is not None and one.result.verb.name not in began:
                raise UnfitError("it has begun there")
            found[topic] = _input(one, plan, verb, topic)
        except UnfitError as unfit:
            reasons.append(str(unfit))
    before = {shared.name: shared for topic in found for shared in behind[topic].result.verbs}
    names = sorted(one.verb for one in found.values())
    lacking = sorted(set(began or ()) - set(names))
    if lacking:
        why = f": {'; '.join(reasons)}" if reasons else ""
        raise VerbChangedError(
            f"the verb {verb.name!r} has begun in one operator with {lacking[0]!r}, and cannot go on there{why}; "
            "write it, and what lies between the two, as before, or go on at another checkpoint: "
            f"{declaration(None, into='a new checkpoint')}"
        )
    told = f"its own: {reasons[0]}" if reasons else None
    shared = Shared(found, list(before.values()), told)
    return replace(shared, told=f"that of {', '.join(shared.names)}") if shared else shared


def _input(behind: Behind, plan: Plan, verb: Verb, topic: str) -> InputOfVerb:
    """Return an input that is the result of a verb whose operator the verb may share.

    Raises:
        UnfitError: it may not.
    """
    result, null_keys = behind.result, verb.inputs[topic].null_keys
    before = result.verb
    if not plan.alone:
        raise UnfitError("it has several operators itself")
    if verb.inputs[topic].grouping is not None:
        raise UnfitError("each of its rows has several keys, which are those of other tasks")
    if [part.index for part in before.flow.runs.plan.parts] != [part.index for part in plan.parts]:
        raise UnfitError(f"its tasks have other numbers than those of {before.name!r}")
    made = behind.columns()
    if [_name(key, result.schema) for key in made.keys] != list(result.keys):
        raise UnfitError(f"{before.name!r} has another key: {', '.join(result.keys) or 'no columns'}")
    alone = null_keys in (NullKeys.APART, NullKeys.DROPPED)
    if not (alone or result.no_null_keys or made.no_null_keys or _all_equal(before.flow.runs.rows, null_keys)):
        there = " & ".join(f"F.col({written(key)!r}).isNotNull()" for key in behind.keys)
        raise UnfitError(f"{before.name!r} spreads null keys over its tasks; without them: .where({there})")
    clock: Collection[str] = ()
    if verb.follows_time:
        path = _path(made.time, result.schema)
        if path is None or result.account.bounds.get(path) is None:
            raise UnfitError(f"its time is none of the times of {before.name!r} that have a bound")
        clock = result.account.sides or list(before.topics)
    return InputOfVerb(before.name, made.projection, clock, alone)


def _is_call(expression: Expression, function: str) -> TypeGuard[Call]:
    return isinstance(expression, Call) and expression.function == function


def _all_equal(inputs: Mapping[str, Input], null_keys: NullKeys) -> bool:
    """Return whether null is a key like any other, on both sides of what lies between."""
    return {one.null_keys for one in inputs.values()} == {null_keys} == {NullKeys.EQUAL}


def _name(expression: Expression, schema: pa.Schema) -> str | None:
    """Return the name of the column that an expression is; None if it is another one."""
    return schema.names[expression.place] if isinstance(expression, Column) else None


def _path(expression: Expression, schema: pa.Schema) -> Path | None:
    """Return the path of the column, or of the field of a struct, that an expression is; None if it is another one."""
    if isinstance(expression, Column):
        return (schema.names[expression.place],)
    if not isinstance(expression, Field):
        return None
    struct = _path(expression.struct, schema)
    return None if struct is None else (*struct, _type(expression.struct, schema).field(expression.place).name)


def _type(expression: Expression, schema: pa.Schema) -> Any:
    if isinstance(expression, Column):
        return schema.types[expression.place]
    assert isinstance(expression, Field)
    return _type(expression.struct, schema).field(expression.place).type
