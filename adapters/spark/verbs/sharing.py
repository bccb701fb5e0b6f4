"""Which verbs of a chain share an operator: what lies between them is read from Spark's plan.

A verb shares the operator of the verb before it if both are by the same columns, Arrow evaluates what lies between, and
the time of the one is a time of the other, or of no account. Then no shuffle, no Python process of its own and no
commit of Spark's lies between them. One that has begun in an operator of its own stays there, and one that has begun in
a shared one, too, since Spark's checkpoint knows operators by their number.

Rule of this module: it decides, and starts nothing. Whatever it does not know for certain, it leaves to Spark.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeGuard

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from millpond.adapters.spark.rows.names import named, written
from millpond.adapters.spark.verbs.account import Account, Path
from millpond.adapters.spark.verbs.arrow_expressions import Call, Cast, Column, Expression, Field, Literal, Rows, Struct
from millpond.adapters.spark.verbs.catalyst import NotInArrowError, analyzed, column_ids, plans_down, selected
from millpond.adapters.spark.verbs.inputs import DAY, ORDER, RowInput, column_of
from millpond.adapters.spark.verbs.shared_flow import InputOfVerb, SharedVerb
from millpond.errors import StateConflictError
from millpond.processors.distribution.exchange import PLACE
from millpond.processors.distribution.plan import Plan
from millpond.processors.verbs.null_keys import NullKeys
from millpond.processors.verbs.verb import Input, Verb
from millpond.stores.evolution.verbs import declaration


@dataclass(frozen=True)
class Projection:
    """What lies between the result of a verb and an input of the next one. Travels to the workers.

    Attributes:
        conditions: what all rows of the input fulfill.
        columns: the columns of the input's prepared rows, by name.
    """

    conditions: Sequence[Expression]
    columns: Mapping[str, Expression]

    def rows(self, results: pa.Table) -> pa.Table:
        """The prepared rows, of rows of the result."""
        for condition in self.conditions:
            results = results.filter(Rows(results).column(condition))
        rows = Rows(results)
        return pa.table({name: rows.column(value) for name, value in self.columns.items()})


class _Result(NamedTuple):
    """The result of a verb behind which others may share its operator.

    Attributes:
        plan: of its rows, as Spark has analyzed it.
        verbs: those of the operator, this one last.
        keys: the columns of its key.
        schema: its columns as they travel.
        inputs: how its rows are packed, by topic.
        account: what is known of its times.
        no_null_keys: whether no row of it has a null in its key.
    """

    plan: Any
    verbs: Sequence[SharedVerb]
    keys: Sequence[str]
    schema: pa.Schema
    inputs: Mapping[str, Input]
    account: Account
    no_null_keys: bool

    @property
    def name(self) -> str:
        """The verb's."""
        return self.verbs[-1].name


class _UnfitError(Exception):
    """The verb does not share the operator; the message says why."""


@dataclass(frozen=True)
class Shared:
    """The operator that a verb shares with those before it.

    Attributes:
        inputs: by topic, the inputs of the verb that they make; none if it has an operator of its own.
        verbs: they and those whose operator they share, each behind those whose results it takes.
    """

    inputs: Mapping[str, InputOfVerb] = field(default_factory=dict)
    verbs: Sequence[SharedVerb] = ()

    def __bool__(self) -> bool:
        return bool(self.inputs)

    @property
    def names(self) -> tuple[str, ...]:
        """The verbs whose results it takes."""
        return tuple(sorted({one.verb for one in self.inputs.values()}))

    @property
    def partitions(self) -> int:
        """How many tasks each of the verbs has."""
        return self.verbs[0].flow.plan.partitions


class Sharing:
    """The verbs of one ``Millpond``, as far as others may share their operators."""

    def __init__(self) -> None:
        self._results: dict[tuple[int, ...], _Result] = {}
        self._told: dict[str, str] = {}

    def told(self, name: str) -> str | None:
        """What is to say of the operator of a verb; None for nothing."""
        return self._told.get(name)

    def add(self, rows: DataFrame, verb: SharedVerb, inputs: Sequence[RowInput], account: Account) -> None:
        """Have others know a verb.

        Args:
            rows: its result.
            verb: the verb.
            inputs: of it.
            account: what is known of its times.
        """
        plan = analyzed(rows)
        if plan is not None:
            behind = self._before(one.verb for one in verb.inputs.values())
            keys, alone = inputs[0].keys, all(one.without_nulls for one in inputs)
            result = _Result(plan, [*behind, verb], keys, verb.sink.rows.schema, verb.flow.rows, account, alone)
            self._results[column_ids(plan)] = result

    def shared(
        self, plan: Plan, inputs: Sequence[RowInput], verb: Verb, began: Collection[str] | None, apart: str | None
    ) -> Shared:
        """The operator that a verb shares.

        Args:
            plan: the verb's.
            inputs: of the verb.
            verb: the verb.
            began: behind which verbs it has begun in their operator; None if it has not begun.
            apart: why it is not to share one; None if it may.

        Raises:
            StateConflictError: it has begun there, and cannot go on there.
        """
        found: dict[str, InputOfVerb] = {}
        reasons = []
        for rows in inputs:
            result = self._result_below(rows.frame)
            if result is None:
                continue
            try:
                if apart is not None:
                    raise _UnfitError(apart)
                if began is not None and result.name not in began:
                    raise _UnfitError("it has begun there")
                found[rows.role] = _input(result, plan, rows, verb)
            except (_UnfitError, NotInArrowError) as unfit:
                reasons.append(str(unfit))
        shared = Shared(found, self._before(one.verb for one in found.values()))
        lacking = sorted(set(began or ()) - set(shared.names))
        if lacking:
            why = f": {'; '.join(reasons)}" if reasons else ""
            raise StateConflictError(
                f"the verb {verb.name!r} has begun in one operator with {lacking[0]!r}, and cannot go on there{why}; "
                "write it, and what lies between the two, as before, or go on at another checkpoint: "
                f"{declaration(None, into='a new checkpoint')}"
            )
        if shared:
            self._told[verb.name] = f"that of {', '.join(shared.names)}"
        elif reasons:
            self._told[verb.name] = f"its own: {reasons[0]}"
        return shared

    def _before(self, names: Iterable[str]) -> Sequence[SharedVerb]:
        wanted = set(names)
        chains = (result.verbs for result in self._results.values() if result.verbs[-1].name in wanted)
        return list({verb.name: verb for chain in chains for verb in chain}.values())

    def _result_below(self, frame: DataFrame) -> _Result | None:
        """The result of a verb of which a DataFrame is made; None if there is none on a single path."""
        whole = analyzed(frame)
        for plan in [] if whole is None else plans_down(whole):
            result = self._results.get(column_ids(plan))
            if result is not None and plan.equals(result.plan):
                return result
        return None


def _input(result: _Result, plan: Plan, rows: RowInput, verb: Verb) -> InputOfVerb:
    """An input that is the result of a verb whose operator the verb may share.

    Raises:
        _UnfitError, NotInArrowError: it may not.
    """
    before, null_keys = result.verbs[-1], verb.inputs[rows.role].null_keys
    if not plan.alone:
        raise _UnfitError("it has several operators itself")
    if [part.index for part in before.flow.plan.parts] != [part.index for part in plan.parts]:
        raise _UnfitError(f"its tasks have other numbers than those of {before.name!r}")
    made = _Columns.of(rows, result.plan)
    if [_name(key, result.schema) for key in made.keys] != list(result.keys):
        raise _UnfitError(f"{before.name!r} has another key: {', '.join(result.keys)}")
    alone = null_keys in (NullKeys.APART, NullKeys.DROPPED)
    if not (alone or result.no_null_keys or made.no_null_keys or _all_equal(result.inputs, null_keys)):
        there = " & ".join(f"F.col({written(key)!r}).isNotNull()" for key in rows.keys)
        raise _UnfitError(f"{before.name!r} spreads null keys over its tasks; without them: .where({there})")
    clock: Collection[str] = ()
    if verb.follows_time:
        path = _path(made.time, result.schema)
        if path is None or result.account.bounds.get(path) is None:
            raise _UnfitError(f"its time is none of the times of {before.name!r} that have a bound")
        clock = result.account.sides or list(before.topics)
    return InputOfVerb(before.name, made.projection, clock, alone)


class _Columns(NamedTuple):
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
        """Whether the conditions leave no row with a null in its key."""
        present = [one.arguments[0] for one in self.projection.conditions if _is_call(one, "is not null")]
        return all(any(key is one for one in present) for key in self.keys)

    @classmethod
    def of(cls, rows: RowInput, source: Any) -> Self:
        """Those of an input, in the columns of a plan below it.

        Raises:
            NotInArrowError: something lies between that Arrow does not evaluate.
        """
        feed = rows.feed if rows.in_order else None
        sequence = None if feed is None else feed.sequence
        given = [rows.time, rows.op, rows.order, sequence]
        others = [column_of(one) for one in given if one is not None]
        frame = rows.frame.select(*map(named, [*rows.keys, *rows.values]), *others)
        columns, conditions = selected(analyzed(frame), source)
        place = len(rows.keys) + len(rows.values)
        keys, values = columns[: len(rows.keys)], columns[len(rows.keys) : place]
        rest = iter(columns[place:])
        time = next(rest)
        made: dict[str, Expression] = {
            "key": Struct(list(rows.keys), keys),
            "value": Struct(list(rows.values), values) if values else Struct(["present"], [Literal(True, pa.bool_())]),
            "timestamp": _micros(time, frame.schema.fields[place].dataType),
        }
        if rows.op is not None:
            made["op"] = next(rest)
        if rows.order is not None:
            made[ORDER] = Struct([ORDER], [next(rest)])
        if sequence is not None:
            made[PLACE] = next(rest)
        return cls(keys, time, Projection(conditions, made))


def _is_call(expression: Expression, function: str) -> TypeGuard[Call]:
    return isinstance(expression, Call) and expression.function == function


def _micros(time: Expression, type_: T.DataType) -> Expression:
    """A time in microseconds since 1970; one without a time zone is taken as it is written."""
    if not isinstance(type_, T.DateType):
        return Cast(time, pa.int64())
    return Call("multiply", [Cast(Cast(time, pa.int32()), pa.int64()), Literal(DAY, pa.int64())])


def _all_equal(inputs: Mapping[str, Input], null_keys: NullKeys) -> bool:
    """Whether null is a key like any other, on both sides of what lies between."""
    return {one.null_keys for one in inputs.values()} == {null_keys} == {NullKeys.EQUAL}


def _name(expression: Expression, schema: pa.Schema) -> str | None:
    """The name of the column that an expression is; None if it is another one."""
    return schema.names[expression.place] if isinstance(expression, Column) else None


def _path(expression: Expression, schema: pa.Schema) -> Path | None:
    """Where the column, or the field of a struct, stands that an expression is; None if it is another one."""
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
