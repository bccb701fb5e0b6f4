"""Random calls of every method of every store kind, for state machines and for comparisons between backends.

Rule of this module: it declares the calls, their arguments and the comparison of answers, but calls nothing. Choices
come from outside, so that the same calls can be drawn by hypothesis or by a seeded generator. Times lie around a clock.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from millpond.stores.encoding.serdes import STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.testing.store_oracles import (
    KeyValueOracle,
    SessionOracle,
    TimestampedOracle,
    VersionedOracle,
    WindowOracle,
)
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp
from millpond.stores.typed.versions.late_puts import LatePuts
from millpond.stores.typed.windows.windowed import Windowed

T = TypeVar("T")

KEYS: Final = ("", "\0", "a", "a\0", "ab", "é", "long" * 200)
"""Keys with prefixes of each other, with the bytes that layouts use, in several lengths."""

VALUES: Final = (None, None, "", "\0", "x", "y", "z", "long" * 300)

RETENTION: Final = 3000
WINDOW: Final = 100
_EARLIEST: Final = -40
_LATEST: Final = 4
_STEP: Final = 100
_PASSING: Final = (*[0] * 12, *[10] * 8, *[_STEP] * 6, *[5 * _STEP] * 2, 2 * RETENTION)


class Choices(ABC):
    """A source of random choices."""

    clock = 0
    """The time around which times are drawn."""

    def pass_time(self) -> None:
        """Move the clock: often a little, rarely beyond everything that a store keeps."""
        self.clock += self.pick(_PASSING)

    @abstractmethod
    def integer(self, low: int, high: int) -> int:
        """Return one of ``low`` to ``high``, both included."""

    @abstractmethod
    def pick(self, among: Sequence[T]) -> T:
        """Return one of the options."""

    def key(self) -> str:
        return self.pick(KEYS)

    def bound(self) -> str | None:
        return self.pick((None, *KEYS))

    def value(self) -> str | None:
        return self.pick(VALUES)

    def time(self) -> int:
        """Return a time around the clock, in coarse steps, so that calls meet each other."""
        return self.clock // _STEP * _STEP + self.integer(_EARLIEST, _LATEST) * _STEP

    def limit(self) -> int | None:
        return self.pick((None, self.time()))

    def times(self) -> tuple[int, int]:
        """Return two times in order."""
        first, second = sorted((self.time(), self.time()))
        return first, second

    def session(self) -> Windowed[str]:
        start = self.time()
        return Windowed(self.key(), start, start + self.integer(0, 3) * _STEP)

    def many(self, choose: Callable[[], T]) -> list[T]:
        return [choose() for _ in range(self.integer(0, 6))]

    def direction(self) -> dict[str, bool]:
        return {"reverse": self.pick((False, True))}


class Seeded(Choices):
    """Choices by a generator with a seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def pick(self, among: Sequence[T]) -> T:
        return self._random.choice(among)


class Call(NamedTuple):
    """The name of a method, and its arguments."""

    method: str
    arguments: tuple[Any, ...]
    options: dict[str, bool]

    def __call__(self, target: Any) -> Any:
        """Return the answer of a store or an oracle; the items of an iterator as a list."""
        answer = getattr(target, self.method)(*self.arguments, **self.options)
        return list(answer) if isinstance(answer, Iterator) else answer


Arguments: TypeAlias = Callable[[Choices], tuple[Any, ...]]


@dataclass(frozen=True)
class KindUnderTest:
    """A kind with its oracle, and the methods that can be called.

    Args:
        spec: the store.
        oracle: makes an empty oracle.
        writes: the methods that change something, with their arguments.
        reads: the methods that do not.
        backward: the methods that take ``reverse`` as well.
    """

    spec: StoreSpec
    oracle: Callable[[], Any]
    writes: dict[str, Arguments]
    reads: dict[str, Arguments]
    backward: frozenset[str]

    @property
    def id(self) -> str:
        late = self.spec.late_puts
        details = [
            "-with-duplicates" if self.spec.retain_duplicates else "",
            "" if late is LatePuts.REFUSED else f"-{late.value.replace(' ', '-')}",
        ]
        return f"{self.spec.kind.value}{''.join(details)}"

    def draw(self, choices: Choices) -> Call:
        """Return a call; half of the calls write, half read."""
        methods = choices.pick((self.writes, self.reads))
        method = choices.pick(tuple(methods))
        arguments = methods[method](choices)
        return Call(method, arguments, choices.direction() if method in self.backward else {})

    def comparable(self, answer: Any) -> Any:
        """Return an answer without the order between keys, where a store promises none."""
        if not self.spec.kind.in_segments or not isinstance(answer, list):
            return answer
        by_key = defaultdict(list)
        for entry in answer:
            by_key[entry[0][0] if isinstance(entry[0], tuple) else None].append(entry)
        return dict(by_key)


def _items(c: Choices) -> list[tuple[str, Any]]:
    return c.many(lambda: (c.key(), c.value()))


def _stamped_items(c: Choices) -> list[tuple[str, Any]]:
    pairs = _items(c)
    return [(key, None if value is None else ValueAndTimestamp(value, c.time())) for key, value in pairs]


_KEYED_READS: dict[str, Arguments] = {
    "get": lambda c: (c.key(),),
    "get_many": lambda c: (c.many(c.key),),
    "scan": lambda c: (c.bound(), c.bound()),
    "prefix_scan": lambda c: (c.key(),),
    "len_estimate": lambda c: (),
}
_KEYED_BACKWARD = frozenset({"scan", "prefix_scan"})
_WINDOW_READS: dict[str, Arguments] = {
    "fetch": lambda c: (c.key(), c.time()),
    "fetch_range": lambda c: (c.key(), c.limit(), c.limit()),
    "fetch_keys": lambda c: (c.bound(), c.bound(), c.limit(), c.limit()),
    "fetch_all": lambda c: (c.limit(), c.limit()),
}
_WINDOW_BACKWARD = frozenset({"fetch_range", "fetch_keys", "fetch_all"})
_SESSION_READS: dict[str, Arguments] = {
    "fetch_session": lambda c: tuple(c.session()),
    "fetch": lambda c: (c.key(),),
    "fetch_keys": lambda c: (c.bound(), c.bound()),
    "find_sessions": lambda c: (c.key(), *c.times()),
    "find_sessions_of_keys": lambda c: (c.bound(), c.bound(), *c.times()),
    "find_sessions_ended": lambda c: c.times(),
}
_SESSION_BACKWARD = frozenset(_SESSION_READS) - {"fetch_session"}


def _spec(kind: StoreKind, **options: Any) -> StoreSpec:
    return StoreSpec("tested", kind, STRING, STRING, **options)


def _window(kind: StoreKind, put: Arguments, *, retain_duplicates: bool = False) -> KindUnderTest:
    return KindUnderTest(
        _spec(kind, retention=RETENTION, window_size=WINDOW, retain_duplicates=retain_duplicates),
        lambda: WindowOracle(RETENTION, WINDOW, retain_duplicates),
        {"put": put},
        _WINDOW_READS,
        _WINDOW_BACKWARD,
    )


def _session(kind: StoreKind, put: Arguments) -> KindUnderTest:
    return KindUnderTest(
        _spec(kind, retention=RETENTION),
        lambda: SessionOracle(RETENTION),
        {"put": put, "remove": lambda c: (c.session(),)},
        _SESSION_READS,
        _SESSION_BACKWARD,
    )


def _versioned(late_puts: LatePuts = LatePuts.REFUSED) -> KindUnderTest:
    return KindUnderTest(
        _spec(StoreKind.VERSIONED, history_retention=RETENTION, late_puts=late_puts),
        lambda: VersionedOracle(RETENTION, None, late_puts.value),
        {
            "put": lambda c: (c.key(), c.value(), c.time()),
            "put_many": lambda c: ([*KEYS[:2], *KEYS[:2]], [c.value() for _ in range(4)], [c.time() for _ in range(4)]),
            "delete": lambda c: (c.key(), c.time()),
        },
        {
            "get": lambda c: (c.key(), c.limit()),
            "get_value": lambda c: (c.key(), c.limit()),
            "get_many": lambda c: (c.many(c.key),),
            "get_many_as_of": lambda c: ([c.key()] * 2 + [c.key()] * 3, [c.time() for _ in range(5)]),
            "get_many_from": lambda c: ([c.key()] * 3 + [c.key()], *zip(*[c.times() for _ in range(4)], strict=True)),
            "history": lambda c: (c.key(), *c.pick((c.times(), (None, c.time()), (c.time(), None), (None, None)))),
            "scan": lambda c: (c.bound(), c.bound()),
        },
        frozenset({"history"}),
    )


KINDS: Final = (
    KindUnderTest(
        _spec(StoreKind.KEY_VALUE),
        KeyValueOracle,
        {
            "put": lambda c: (c.key(), c.value()),
            "put_many": lambda c: ([*KEYS[:3]], [c.value() for _ in range(3)]),
            "put_all": lambda c: (_items(c),),
            "put_if_absent": lambda c: (c.key(), c.value()),
            "delete": lambda c: (c.key(),),
        },
        _KEYED_READS,
        _KEYED_BACKWARD,
    ),
    KindUnderTest(
        _spec(StoreKind.TIMESTAMPED_KEY_VALUE),
        TimestampedOracle,
        {
            "put": lambda c: (c.key(), c.value(), c.time()),
            "put_many": lambda c: ([*KEYS[:3]], [c.value() for _ in range(3)], [c.time() for _ in range(3)]),
            "put_all": lambda c: (_stamped_items(c),),
            "put_if_absent": lambda c: (c.key(), c.value(), c.time()),
            "delete": lambda c: (c.key(),),
        },
        {**_KEYED_READS, "get_value": lambda c: (c.key(),)},
        _KEYED_BACKWARD,
    ),
    _versioned(),
    _window(StoreKind.WINDOW, lambda c: (c.key(), c.value(), c.time())),
    _window(StoreKind.WINDOW, lambda c: (c.key(), c.value(), c.time()), retain_duplicates=True),
    _window(StoreKind.TIMESTAMPED_WINDOW, lambda c: (c.key(), c.value(), c.time(), c.time())),
    _session(StoreKind.SESSION, lambda c: (c.session(), c.value())),
    _session(StoreKind.TIMESTAMPED_SESSION, lambda c: (c.session(), c.value(), c.time())),
    _versioned(LatePuts.VALID),
    _versioned(LatePuts.VALID_FIRST),
)
"""Every kind."""
