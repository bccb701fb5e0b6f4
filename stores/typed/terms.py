"""Terms: the parameters of an operator on which the rows of its store depend.

Rule of this module: it compares and keeps, and knows no operator. *Fixed* terms stay the same as long as the rows;
*noted* ones may change, and the processor that fills the store is told what they were. The row of a store with terms
carries a version number, and a version never changes its meaning::

    0x00 "terms" -> {"fixed":{"size":600000},"noted":{"reach":600000},"terms":1}, UTF-8

A row without a number is of version 1. Lengths of time are ints in the unit of the topology. The row is written with
the first change that is committed, and again when a noted term has changed. As metadata it goes into deltas and
snapshots. A term that it does not name is unknown, as all terms are in a store of a release that kept none, and agrees
with anything.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Self, TypeAlias

from millpond.errors import CallChangedError, CorruptStoreError, FormatError, StateConflictError
from millpond.stores.backend.contract import Backend
from millpond.stores.encoding.keys import METADATA, TERMS_ROW
from millpond.stores.encoding.times import TimeUnit, to_instant_micros

Term: TypeAlias = int | str
"""A length of time, or text."""


class Written(str):
    """Text that a user writes without quotes, such as ``3`` or ``[True, False]``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


TERMS: Final = TERMS_ROW[len(METADATA) :].decode()
"""The name of the row among metadata."""

TERMS_VERSION: Final = 1

USUAL: Final[Mapping[str, Term]] = {
    "null_safe": "False",
    "calendar": "",
    "offset": 0,
    "at_most": 0,
    "zone": "",
    "week_start": "",
    "max_length": 0,
}
"""The values of terms that do not name these, such as terms of releases that did not know them."""

SINCE: Final = " since "
"""The mark in names of terms of rows that begin at some time: such terms may come, and never go."""


@dataclass(frozen=True)
class Terms:
    """The terms of one store.

    Attributes:
        fixed: the fixed terms, by the names of the parameters, as a user writes them; they never change.
        noted: the facts of earlier runs that the processor which fills the store has to know.
        lasting: the names of noted terms that may become more, and never less.
        maker: the owner of the terms, for errors; empty for the store's own.
        verb: whether the owner is a verb, whose state has its name.
        unit: the unit of lengths of time.
        changing: the names of terms that may change for rows that begin from some time on, if the verb is told so.
    """

    fixed: tuple[tuple[str, Term], ...] = ()
    noted: tuple[tuple[str, int], ...] = ()
    lasting: tuple[str, ...] = ()
    maker: str = ""
    verb: bool = False
    unit: TimeUnit = TimeUnit.MILLISECOND
    changing: tuple[str, ...] = ()

    def of_verb(self, name: str, fixed: Mapping[str, Term], unit: TimeUnit) -> Self:
        """Return the terms of a store of a verb, with terms of the verb's own."""
        every = tuple({**dict(self.fixed), **fixed}.items())
        return replace(self, fixed=every, maker=f"the verb {name!r}", verb=True, unit=unit)

    @property
    def kept(self) -> "KeptTerms":
        """The terms as a store keeps them."""
        return KeptTerms(dict(self.fixed), dict(self.noted))

    def check(self, store: str, before: "KeptTerms") -> None:
        """Refuse rows that were made with other fixed terms, or with more of a term that may not become less.

        Args:
            store: the name of the store for errors.
            before: the terms that the rows were made with, as far as they are known.

        Raises:
            StateConflictError: a term has changed.
        """
        noted, names = before.noted, {*dict(self.fixed), *before.fixed}
        own, fixed = self.kept.spelled_out(names), before.spelled_out(names)
        others = [(name, _like(fixed[name], now), now) for name, now in own.items() if fixed.get(name, now) != now]
        others += [(name, noted[name], now) for name, now in self._lasting.items() if noted.get(name, now) > now]
        if others:
            raise self._conflict(store, others, before)
        gone = {name: value for name, value in fixed.items() if SINCE in name and name not in own}
        if gone:
            told = ", ".join(f"{name}={self._shown(value)}" for name, value in gone.items())
            raise CallChangedError(
                f"the rows of the store {store!r} were made by {self.maker} with {told}, which is not there any more; "
                "write its until again, with those times"
            )

    @property
    def in_shape(self) -> "Terms":
        """The terms that decide whether rows can be continued: the fixed ones, and those that may not become less."""
        return Terms(self.fixed, tuple(self._lasting.items()))

    @property
    def _lasting(self) -> dict[str, int]:
        return {name: value for name, value in self.noted if name in self.lasting}

    def _conflict(
        self, store: str, others: Sequence[tuple[str, Term, Term]], before: "KeptTerms"
    ) -> StateConflictError:
        """Return the error that refuses the rows of a store.

        Args:
            store: the name of the store for errors.
            others: the name of each parameter that has changed, its value for the rows, and its value now.
            before: the terms that the rows were made with.
        """
        told = ", ".join(f"{self._named(name, old)} and not {self._now(name, now)}" for name, old, now in others)
        again = ", ".join(self._named(name, old) for name, old, _ in others)
        new = "give the verb another name and a new checkpoint"
        if self.verb and all(name in self.changing for name, _, _ in others):
            new = f"{new}, or leave windows that have begun as they were: {self._until(before)}"
        if not self.verb:
            new = f"give the new store another name, and drop the old one: Evolution(..., dropped=[{store!r}])"
        by = f" by {self.maker}" if self.maker else ""
        return CallChangedError(
            f"the rows of the store {store!r} were made{by} with {told}, and cannot become others; write {again} "
            f"again, or {new}"
        )

    def _until(self, before: "KeptTerms") -> str:
        """Return the argument for windows that are others from some time on."""
        known = {**dict(self.fixed), **before.fixed}
        lengths = {name: before.fixed[name] for name in self.changing if name in before.fixed}
        noted = {name: max(value, self.kept.noted.get(name, 0)) for name, value in before.noted.items()}
        graces = {name: value for name, value in noted.items() if SINCE not in name and value}
        told = ", ".join(f"{name}={self._shown(value)}" for name, value in {**lengths, **graces}.items())
        windows = str(known["windows"]).removeprefix("_")
        return (
            f"until={{'2026-06-01T00:00:00+00:00': {windows}({told})}}, with a time that no row has reached and at "
            "which new windows begin"
        )

    def to_bytes(self) -> bytes:
        """Return the value of the row ``TERMS_ROW``."""
        return _packed(dict(self.fixed), dict(self.noted))

    def _named(self, name: str, value: Term) -> str:
        """Return a term as a user writes it, or words for its absence."""
        return f"no {name}" if _is_absent(name, value) else f"{name}={self._shown(value)}"

    def _now(self, name: str, value: Term) -> str:
        """Return a value as a user writes it, or words for its absence."""
        return "none" if _is_absent(name, value) else self._shown(value)

    def _shown(self, value: Term) -> str:
        return repr(self.unit.length(value) if isinstance(value, int) else value)


def _is_absent(name: str, value: Term) -> bool:
    """Return whether a term means that there is no such thing."""
    return not value and _plain(name) in USUAL


@dataclass(frozen=True)
class KeptTerms:
    """The terms that a store keeps; empty if it has none, or they are unknown.

    Attributes:
        fixed, noted: as ``Terms`` has them, by name.
    """

    fixed: Mapping[str, Term]
    noted: Mapping[str, int]

    def spelled_out(self, names: Collection[str]) -> dict[str, Term]:
        """Return the fixed terms, with the usual values of others of these names, as far as anything is known."""
        times = {_time_of(name) for name in (*self.fixed, *self.noted)}
        unnamed = (name for name in names if _plain(name) in USUAL and _time_of(name) in times)
        return {name: USUAL[_plain(name)] for name in unnamed} | dict(self.fixed)

    @property
    def since(self) -> list[int]:
        """The times at which rows begin that differ from those before, ascending, in microseconds since 1970."""
        found = {name.partition(SINCE)[2] for name in self.fixed if SINCE in name}
        return sorted(map(_moment, found))

    def at(self, time: int) -> Mapping[str, Term]:
        """Return the fixed terms of rows that begin at a time, by their names without times."""
        found = {name: value for name, value in self.fixed.items() if SINCE not in name}
        for since in (one for one in self.since if one <= time):
            end = f"{SINCE}{TimeUnit.MICROSECOND.shown(since)}"
            found |= {name.removesuffix(end): value for name, value in self.fixed.items() if name.endswith(end)}
        return found

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        """Return the terms in a row; empty ones for no row.

        Raises:
            FormatError: this release does not know its version.
            ValueError: the row is damaged.
        """
        if data is None:
            return cls({}, {})
        content = json.loads(data.decode())  # Of bytes, json would guess the encoding.
        try:
            version = content.get("terms", TERMS_VERSION)
            if type(version) is not int or version != TERMS_VERSION:
                raise FormatError(
                    f"terms have version {version!r}, but this release of Millpond knows version {TERMS_VERSION}; run "
                    "the release that wrote them, or a newer one"
                )
            return cls(read_terms(content["fixed"]), read_noted(content["noted"]))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"terms are damaged: {error!r}") from error


def _like(before: Term, now: Term) -> Term:
    """Return a former term in the form of the present one, to be shown."""
    return Written(before) if isinstance(now, Written) else before


def _plain(name: str) -> str:
    """Return the name of a term without the time at which its rows begin."""
    return name.partition(SINCE)[0]


def _time_of(name: str) -> str:
    """Return the time from which rows have a term; empty if they have had it from the beginning."""
    return name.partition(SINCE)[2]


def _moment(text: str) -> int:
    """Return the time that ``TimeUnit.MICROSECOND`` shows as this text."""
    if text.removeprefix("-").isdecimal():
        return int(text)
    return to_instant_micros(datetime.fromisoformat(text))


def kept_terms(store: str, terms: Terms | None, backend: Backend) -> KeptTerms:
    """Return the terms that a store was committed with.

    Args:
        store: the name of the store for errors.
        terms: the terms that it is opened with; None if none are given.
        backend: the rows as they were committed.

    Raises:
        StateConflictError: the rows were made with other terms.
        FormatError: a later release has kept them.
        CorruptStoreError: the row that tells the terms is damaged.
    """
    data = backend.get(TERMS_ROW)
    try:
        kept = KeptTerms.from_bytes(data)
    except FormatError as error:
        raise FormatError(f"of store {store!r}, the {error}") from None
    except (ValueError, RecursionError) as error:
        raise CorruptStoreError(f"store {store!r} has the damaged terms {data!r}: {error}") from error
    if terms is not None:
        terms.check(store, kept)
    return kept


def read_terms(content: Any) -> dict[str, Term]:
    """Return fixed terms by name, from JSON's objects.

    Raises:
        TypeError: they are no terms.
    """
    if not isinstance(content, dict) or not all(type(value) is str or _is_number(value) for value in content.values()):
        raise TypeError(f"{content!r} are no terms")
    return content


def _is_number(value: object) -> bool:
    """Return whether a value is a number of terms: of 64 bits, with a sign."""
    return type(value) is int and -(2**63) <= value < 2**63


def read_noted(content: Any) -> dict[str, int]:
    """Return the noted terms by name, from JSON's objects.

    Raises:
        TypeError: they are no noted terms.
    """
    if not isinstance(content, dict) or not all(map(_is_number, content.values())):
        raise TypeError(f"{content!r} is nothing noted")
    return content


def merged_terms(found: Iterable[bytes]) -> bytes:
    """Return the row of a partition that several become, with the least of each noted term."""
    fixed: dict[str, Term] = {}
    noted: dict[str, int] = {}
    for kept in map(KeptTerms.from_bytes, found):
        fixed |= kept.fixed
        for name, value in kept.noted.items():
            noted[name] = min(value, noted.get(name, value))
    return _packed(fixed, noted)


def _packed(fixed: Mapping[str, Term], noted: Mapping[str, int]) -> bytes:
    content = {"fixed": fixed, "noted": noted, "terms": TERMS_VERSION}
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
