"""``Account``: the timing of a verb, as data, and the text that describes it.

Rule of this module: it knows neither Spark nor any verb. Lengths of time are in microseconds.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from millpond.processors.verbs.projections import CHANGE_TIME

Path: TypeAlias = tuple[str, ...]
"""A column by its name, or a field of a struct by the names that lead to it."""

GRACE: Final = "grace"
HISTORY: Final = "history"
LATENESS: Final = "lateness"
TTL: Final = "ttl"
WITHIN: Final = "within"

HEAD: Final = ("verb", "kind", "clock", "late rows", "comes out", "keeps")
"""The titles of the parts of an account's row."""

_UNITS: Final[Mapping[str, int]] = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "min": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_NO_TIME: Final = "0 s"
_WIDTH: Final = 11
"""Of the column in front of what a line says."""


@dataclass(frozen=True)
class InputTime:
    """The time of an input.

    Attributes:
        bound: how much later than its time a row may come.
        path: its place in the result; None if it is not there, or not as it was.
    """

    bound: int
    path: Path | None = None


@dataclass(frozen=True)
class Allowance:
    """A length of time that a verb was given, and the length that its inputs add to it.

    Attributes:
        what: the name of the argument.
        own: the length that the user gave.
        added: the length for rows that the verbs before this one hold back.
    """

    what: str
    own: int
    added: int

    @property
    def total(self) -> int:
        """The length of time that the verb goes by."""
        return self.own + self.added


@dataclass(frozen=True)
class Account:
    """The timing of a verb.

    Attributes:
        name: the verb's name.
        kind: the method of the verb.
        clock: the words for what it takes as the time.
        allowances: how late rows may be, and how far back it remembers.
        waits: the words for what a row waits for.
        longest: how much later than its time a row may come out, by that clock; None if there is no limit.
        bounds: of the time columns of the result, how much later than their time a row may come, by the same clock;
            None if a row of any age may.
        keeps: the words for what its state holds, and until when.
        sides: the inputs whose time the bounds are compared with; empty for all.
    """

    name: str
    kind: str
    clock: str
    allowances: Sequence[Allowance]
    waits: str
    longest: int | None
    bounds: Mapping[Path, int | None]
    keeps: str
    sides: Collection[str] = ()

    @property
    def marks(self) -> dict[Path, int]:
        """The bounds that the next verb needs: those that are not 0, and that of a change feed."""
        return {path: bound for path, bound in self.bounds.items() if bound or (bound == 0 and path == (CHANGE_TIME,))}

    @property
    def row(self) -> tuple[str, ...]:
        """The same in short, in the order of ``HEAD``."""
        allowed = "; ".join(f"{one.what} {shown(one.total)}" for one in self.allowances)
        return self.name, self.kind, self.clock, allowed, _comes_out(self.longest), self.keeps

    def text(self, operator: str | None = None) -> str:
        """Return the text that ``explain`` shows of the verb; ``operator`` is what it says of the verb's operator."""
        lines = [
            *([] if operator is None else [("operator", operator)]),
            ("clock", self.clock),
            *((one.what, _sum(one)) for one in self.allowances),
            ("waits", self.waits),
            ("comes out", _comes_out(self.longest)),
            *(("bound", f"{'.'.join(path)}: {_bound(bound)}") for path, bound in self.bounds.items()),
            ("keeps", self.keeps),
        ]
        return "\n".join([f"{self.name} ({self.kind})", *(f"  {head:<{_WIDTH}}{tail}" for head, tail in lines)])


def explained(accounts: Iterable[Account], operator: Callable[[str], str | None] = lambda name: None) -> str:
    """Return the text of all verbs, in their order; ``operator`` returns the words about a verb's operator."""
    return "\n\n".join(account.text(operator(account.name)) for account in accounts)


def shown(length: int) -> str:
    """Return a length of time as text.

    >>> shown(5_400_000_000), shown(1_500), shown(0)
    ('1 h 30 min', '1 ms 500 us', '0 s')
    """
    parts = []
    for unit, size in _UNITS.items():
        count, length = divmod(length, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts) or _NO_TIME


def _sum(allowance: Allowance) -> str:
    own, added, total = map(shown, (allowance.own, allowance.added, allowance.total))
    return f"{own} of its own + {added} for its inputs = {total}"


def _comes_out(longest: int | None) -> str:
    if longest is None:
        return "when that has happened, however long it takes"
    return f"at most {shown(longest)} after its time" if longest else "with the micro-batch that brings it"


def _bound(bound: int | None) -> str:
    return "none, it may be of any age" if bound is None else shown(bound)
