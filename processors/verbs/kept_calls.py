"""The calls of an aggregate or an over as they are kept with its state, and their possible changes at a restart.

Rule of this module: it compares calls by the names of their results, and never guesses. The user declares what begins
empty and what is forgotten; a call is unchanged, or has another name. Kept calls are the columns of a schema in a
history (``millpond.stores.encoding.rows.schemas``), of type null, with their records as metadata; the id of such a
column is one more than the place of its state in a row.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Final, NamedTuple

import pyarrow as pa

from millpond.errors import CallChangedError, InvalidEvolutionError, StateConflictError
from millpond.processors.verbs.aggregates.call import USER_DEFINED
from millpond.processors.verbs.encoding.state_serde import Slots
from millpond.stores.encoding.rows.nested import Column, Columns, all_ids
from millpond.stores.encoding.rows.renames import by_third_name, exchange_refused, exchanged, free_name, to_apply
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.evolution.matching import check_said

_STATE: Final = b"state"
_ARGUMENT: Final = b"argument"
_SECOND: Final = b"second"
_WHERE: Final = b"where"
_SINCE: Final = re.compile(r"since (-?\d+) ")
"""Before the name of a state that has nothing from before a time. A release that knows no such times takes it for
another state, and refuses to go on with it."""
_OPTION: Final = re.compile(r", (\w+=(?:\[[^\]]*\]|[^,()=\[]+))")
_DEFINED: Final = re.compile(rf"{USER_DEFINED}\(.*, name='(\w+)', version=\d+\)")
_FILTERED: Final = "filtered "
"""Before the name of a state to which only rows belong that fulfill a condition, for the same reason."""
ORDERED: Final = "ordered "
"""Before the name of a state that goes by times and orders of rows."""


class KeptCall(NamedTuple):
    """The record of a call, kept with its state.

    Attributes:
        state: the name of its state, which says all that the bytes depend on.
        argument: the column or expression that it is applied to, as text; None if rows are counted.
        since: the time of the first rows that count, in microseconds since 1970; None if all do.
        where: the condition of rows that count, as text; None if there is none.
        second: the second column or expression of a function of two, as text.
    """

    state: str
    argument: str | None
    since: int | None = None
    where: str | None = None
    second: str | None = None

    def written(self, shown: Callable[[str], str]) -> str:
        """Return the call as one writes it, with an argument and a condition that are shown so."""
        defined = _DEFINED.fullmatch(self.state)
        function = defined[1] if defined else self.state.removeprefix(ORDERED).partition("(")[0]
        options = [] if defined else _OPTION.findall(self.state)
        arguments = [shown(argument) for argument in (self.argument, self.second) if argument is not None]
        where = [] if self.where is None else [f"where={shown(self.where)}"]
        return f"{function}({', '.join([*arguments, *options, *where])})"


Calls = Mapping[str, KeptCall]
"""By the names of their results, in their order."""


@dataclass(frozen=True)
class CallChanges:
    """The changes that a user declares of calls, by the names of their results.

    Attributes:
        added: results that begin empty, or for some of them the time since which they are true, in microseconds since
            1970.
        filled: results in ``added`` that get all rows so far when the state is carried over.
        renamed: the new names of results, by their old ones.
        dropped: results that are gone, with their states.
        beside: new names of columns that are declared in the same place, for advice.
    """

    added: Collection[str] | Mapping[str, int | None] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: Collection[str] = ()
    filled: Collection[str] = ()
    beside: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_said(self.renamed, self.dropped)

    def since(self, name: str) -> int | None:
        """Return the time since which an added call is true; None if it begins empty, or is not added."""
        return self.added.get(name) if isinstance(self.added, Mapping) else None

    def check(self, calls: Collection[str], verb: str) -> None:
        """Refuse what fits no call.

        Raises:
            ConfigurationError: something does not.
        """
        said = f"the verb {verb!r}:"
        for name in self.added:
            if name not in calls:
                raise InvalidEvolutionError(f"{said} added names {name!r}, but calls has only {_listed(calls)}")
        exchanged = exchange_refused(self.renamed, calls)
        if exchanged:
            raise InvalidEvolutionError(f"{said} {exchanged}")
        called = set(self.renamed.values())
        for name in self.dropped:
            if name in calls and name not in called:
                raise InvalidEvolutionError(
                    f"{said} dropped names {name!r}, but calls has it; take it out of one of them, or, to begin anew "
                    "under that name, drop it in one release, and add it in the next"
                )
        for old, new in self.renamed.items():
            if new not in calls:
                raise InvalidEvolutionError(
                    f"{said} renamed says that {old!r} is {new!r} now, but calls has only {_listed(calls)}"
                )
            if old in calls and old not in called:
                raise InvalidEvolutionError(
                    f"{said} renamed says that {old!r} is {new!r} now, but calls has a {old!r}, too; take out of "
                    f"renamed what an earlier run has applied, or, if a new one is to be called {old!r}, rename in one "
                    "release, and add it in the next"
                )
        if len(set(self.renamed.values())) < len(self.renamed):
            raise InvalidEvolutionError(f"{said} renamed gives two results the same name: {dict(self.renamed)}")


@dataclass(frozen=True)
class Arguments:
    """The equality and the form of arguments and conditions, which are kept as text.

    Attributes:
        follow: whether the second one may be the same as the first one.
        shown: returns one as it is written.
    """

    follow: Callable[[str, str], bool] = str.__eq__
    shown: Callable[[str], str] = repr


def first_calls(calls: Calls) -> pa.Schema:
    """Return the schema of calls with which state begins."""
    return pa.schema([_field(name, call) for name, call in calls.items()])


def calls_in(schema: pa.Schema) -> dict[str, KeptCall]:
    """Return the calls that the columns of such a schema have."""
    return {column.name: _call(column) for column in schema}


def since_in(schema: pa.Schema) -> dict[str, int]:
    """Return the times since which calls are true, for calls that have one."""
    return {name: call.since for name, call in calls_in(schema).items() if call.since is not None}


def places_in(history: Schemas) -> dict[str, int]:
    """Return the place in a row of each of the newest calls' states."""
    return {column.field.name: column.id - 1 for column in history.versions[-1]}


def slots_of(history: Schemas, name: str, filled: Collection[int] = ()) -> Slots:
    """Return the places of the states of the newest calls.

    Args:
        history: the calls so far.
        name: the name of the states' serde.
        filled: places that rows may have besides those of all calls so far.
    """
    first, *_ = history.versions
    everything = chain.from_iterable(map(all_ids, history.versions))
    longest = max([*everything, *(place + 1 for place in filled)])
    return Slots(name, tuple(places_in(history).values()), max(all_ids(first)), longest)


def evolved_calls(
    history: Schemas,
    calls: Calls,
    changes: CallChanges,
    verb: str,
    arguments: Arguments | None = None,
    filled: Collection[int] = (),
) -> Schemas:
    """Return the history in which these calls are the newest: the same one, if they are that already.

    What was declared in earlier runs may stay declared. A call goes on with the time since which it is true; a call
    with which the state began has all rows, whatever is declared.

    Args:
        history: the calls so far.
        calls: the wanted calls.
        changes: the changes that the user declares.
        verb: the name of the verb in errors.
        arguments: compares arguments; None if only equal texts are the same.
        filled: the places of states that got all rows so far; no other call gets them, whatever the history says.

    Raises:
        StateConflictError: a call has changed, or is new or gone and not declared so; the message has what to
            write.
    """
    change = _Change(history.versions[-1], calls, changes, verb, arguments or Arguments())
    change.check()
    first = set(all_ids(history.versions[0]))
    change.check_since(first)
    change.check_filled({*first, *(place + 1 for place in filled)})
    ids = count(slots_of(history, "", filled).longest + 1)
    columns = tuple(
        Column(change.kept[name].id if name in change.kept else next(ids), _field(name, call._replace(since=since)))
        for name, call in calls.items()
        for since in (_call(change.kept[name].field).since if name in change.kept else changes.since(name),)
    )
    same = _compared(columns) == _compared(history.versions[-1])
    return history if same else Schemas((*history.versions, columns))


class _Change:
    """The calls of the state beside the wanted ones.

    Attributes:
        kept: the columns of calls that go on, by their names now.
        new, gone, other: the names of calls that are new, gone and changed.
    """

    def __init__(self, before: Columns, calls: Calls, changes: CallChanges, verb: str, arguments: Arguments) -> None:
        self._calls = calls
        self._changes = changes
        self._verb = verb
        self._arguments = arguments
        self._before = {column.field.name: _call(column.field) for column in before}
        self._renamed = to_apply(changes.renamed, self._before, calls)
        taken = {new: old for old, new in self._renamed.items() if new in self._before and new not in self._renamed}
        names = {name: self._renamed.get(name, name) for name in self._before}
        names = {old: new for old, new in names.items() if old not in taken or old not in changes.dropped}
        self.kept = {names[one.field.name]: one for one in before if names.get(one.field.name) in calls}
        self._two = [old for new, old in taken.items() if new not in changes.dropped]
        self.new = [name for name in calls if name not in self.kept]
        self.gone = [old for old, new in names.items() if new not in calls]
        self.other = [name for name, one in self.kept.items() if not self._same(_call(one.field), calls[name])]

    def check(self) -> None:
        for old in self._two:
            new, kept = self._renamed[old], self._free(self._renamed[old])
            added, gone = self._changes.added, self._changes.dropped
            raise CallChangedError(
                f"the verb {self._verb!r}: two results of its state would be {new!r}, {old!r} and the one that has "
                f"that name; write {self._line(added, self._renamed, [*gone, new])}, which deletes the state of the "
                f"latter, or give calls that one as {kept!r}, too, and write "
                f"{self._line(added, {**self._renamed, new: kept}, gone)}"
            )
        said = set(self.new) <= {*self._changes.added} and set(self.gone) <= {*self._changes.dropped}
        if said and not self.other:
            return
        shown = self._shown
        raise CallChangedError(
            f"the verb {self._verb!r} has other calls than its state:\n"
            f"  state: {', '.join(f'{name}={shown(call)}' for name, call in self._before.items())}\n"
            f"  calls: {', '.join(f'{name}={shown(call)}' for name, call in self._calls.items())}\n"
            f"{self._others()}{self._advice()}"
        )

    def check_since(self, first: Collection[int]) -> None:
        """Refuse another time than a call has begun with.

        Args:
            first: the ids of calls with which the state began.
        """
        for name, column in self.kept.items():
            said, since = self._changes.since(name), _call(column.field).since
            if said in (None, since) or column.id in first:
                continue
            raise self._begun(name, f"be true since {_time(said)}")

    def check_filled(self, whole: Collection[int]) -> None:
        """Refuse to fill a call that has begun otherwise.

        Args:
            whole: the ids of calls with which the state began, or that have been filled.
        """
        for name in self._changes.filled:
            if name in self.kept and self.kept[name].id not in whole:
                raise self._begun(name, "get the rows from before")

    def _begun(self, name: str, said: str) -> StateConflictError:
        """Return the error for a call that has begun in another way than is said now."""
        column = self.kept[name]
        since, free = _call(column.field).since, self._free(name)
        items = (f"{(free if one == name else one)!r}: {self._shown(call)}" for one, call in self._calls.items())
        begun = "began empty" if since is None else f"is true since {_time(since)}"
        kept, filled = _line({name: since}, {}, ()), [free] if name in self._changes.filled else []
        anew = _line({free: self._changes.since(name)}, {}, [column.field.name], filled)
        return CallChangedError(
            f"the verb {self._verb!r}: {name!r} {begun}, and cannot {said}; write {kept}, or "
            f"begin anew under another name: {{{', '.join(items)}}}, {anew}"
        )

    def _others(self) -> str:
        """Return the words about changed calls."""
        lines = []
        for name in self.other:
            column, call = self.kept[name], self._calls[name]
            before, now = _call(column.field), call
            was, is_ = self._shown(before), self._shown(now)
            if was == is_:
                was, is_ = f"{was} with the state {before.state}", f"{is_} with the state {now.state}"
            back = ""
            other = now.state != before.state or not self._follow(before.where, now.where)
            pairs = ((before.argument, now.argument), (before.second, now.second))
            differ = [[old, new] for old, new in pairs if old and new and not self._follow(old, new)]
            if not other and differ:
                new, old = (self._arguments.shown(one) for one in reversed(differ[0]))
                back = f" (if the column has been renamed: .withColumnRenamed({new}, {old}))"
            lines.append(
                f"{name!r} was {was} and is {is_}, which cannot go on with the state of the former: write it again"
                f"{back}, or the new one under a name of its own\n"
            )
        return "".join(lines)

    def _advice(self) -> str:
        """Return the advice on what to write."""
        new, gone, line = self._written({})
        told = f"write {line}: "
        told += "what is added begins empty" if new else ""
        told += ", and " if new and gone else ""
        told += "the state of what is dropped is deleted" if gone else ""
        guessed = self._guessed()
        circle = exchanged(guessed)
        if circle:
            steps = by_third_name(circle, guessed, {*self._calls, *self._before})
            told = f"if {_listed(circle)} have exchanged names: {steps}; or else {told}"
            guessed = {old: name for old, name in guessed.items() if old not in circle}
        if not guessed:
            return told
        pairs = ", ".join(f"{old!r} is called {now!r} now" for old, now in guessed.items())
        return f"if {pairs}: write {self._written(guessed)[2]}; or else {told}"

    def _written(self, guessed: Mapping[str, str]) -> tuple[list[str], list[str], str]:
        """Return what is added, what is dropped, and the code for it, if undeclared new names are as guessed."""
        now = set(guessed.values())
        fresh = {name: self._free(name) for name in self.other if name not in now}
        new = [*(name for name in self.new if name not in now), *fresh.values()]
        gone = [old for old in self._open if old not in guessed]
        called = {old: name for old, name in self._renamed.items() if name not in self.other}
        items = (f"{fresh.get(name, name)!r}: {self._shown(call)}" for name, call in self._calls.items())
        calls = f"{{{', '.join(items)}}}, " if fresh else ""
        return new, gone, f"{calls}{self._line(new, {**called, **guessed}, gone)}"

    @property
    def _open(self) -> list[str]:
        """The names that results of the state had which do not go on as it is said."""
        return [*self.gone, *(self.kept[name].field.name for name in self.other)]

    def _line(self, new: Collection[str], called: Mapping[str, str], gone: Collection[str]) -> str:
        """Return the code for the changes, with the times that are declared already."""
        added = {name: self._changes.since(name) for name in new}
        return _line(added, {**self._changes.beside, **called}, gone, self._changes.filled)

    def _guessed(self) -> dict[str, str]:
        """Return, by old names, new names that lost or changed results may have now."""
        found: dict[str, str] = {}
        for old in self._open:
            fitting = (name for name in (*self.new, *self.other) if self._same(self._before[old], self._calls[name]))
            name = next((name for name in fitting if name not in found.values()), None)
            if name is not None and name not in self._changes.added and old not in self._changes.dropped:
                found[old] = name
        return found

    def _same(self, before: KeptCall, now: KeptCall) -> bool:
        texts = zip((before.argument, before.second, before.where), (now.argument, now.second, now.where), strict=True)
        return before.state == now.state and all(self._follow(old, new) for old, new in texts)

    def _follow(self, before: str | None, now: str | None) -> bool:
        """Return whether an argument or a condition may be unchanged."""
        return before == now if before is None or now is None else self._arguments.follow(before, now)

    def _free(self, name: str) -> str:
        """Return the name with a number that no result has."""
        return free_name(name, {*self._calls, *self._before})

    def _shown(self, call: KeptCall) -> str:
        return call.written(self._arguments.shown)


def _line(
    added: Mapping[str, int | None],
    renamed: Mapping[str, str],
    dropped: Collection[str],
    filled: Collection[str] = (),
) -> str:
    """Return the code for these changes."""
    begins = {name: repr(None if since is None else _time(since)) for name, since in added.items()}
    begins |= {name: "history" for name in added if name in filled}
    timed = f"{{{', '.join(f'{name!r}: {begin}' for name, begin in begins.items())}}}"
    empty = all(begin == "None" for begin in begins.values())
    parts = [
        ("added", str(list(added)) if empty else timed, added),
        ("renamed", str(dict(renamed)), renamed),
        ("dropped", str(list(dropped)), dropped),
    ]
    return ", ".join(f"{name}={text}" for name, text, value in parts if value)


def _field(name: str, call: KeptCall) -> Any:
    since = "" if call.since is None else f"since {call.since} "
    filtered = "" if call.where is None else _FILTERED
    metadata = {_STATE: f"{since}{filtered}{call.state}".encode()}
    if call.argument is not None:
        metadata[_ARGUMENT] = call.argument.encode()
    if call.second is not None:
        metadata[_SECOND] = call.second.encode()
    if call.where is not None:
        metadata[_WHERE] = call.where.encode()
    return pa.field(name, pa.null(), metadata=metadata)


def _call(column: Any) -> KeptCall:
    argument, second, where = (_text(column, key) for key in (_ARGUMENT, _SECOND, _WHERE))
    state = column.metadata[_STATE].decode()
    since = _SINCE.match(state)
    return KeptCall(
        (state[since.end() :] if since else state).removeprefix("" if where is None else _FILTERED),
        argument,
        int(since[1]) if since else None,
        where,
        second,
    )


def _text(column: Any, key: bytes) -> str | None:
    """Return the text that is kept of a call under that key."""
    found = column.metadata.get(key)
    return None if found is None else str(found, "utf-8")


def _time(since: int) -> str:
    return TimeUnit.MICROSECOND.shown(since)


def _compared(columns: Columns) -> list[tuple[int, str, KeptCall]]:
    """Return what distinguishes calls; fields that are equal may have other metadata."""
    return [(column.id, column.field.name, _call(column.field)) for column in columns]


def _listed(calls: Collection[str]) -> str:
    return ", ".join(map(repr, calls))
