"""The content of a query's stores and its output, told by dicts that know the records of committed batches."""

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple, Self, TypeAlias

from tests.evolution.topologies import LATER, OWN, SPAN, Variant

UNKNOWN = -1
"""The timestamp of what was written without one."""


class Record(NamedTuple):
    key: str
    value: int | None
    time: int


class Told(NamedTuple):
    """A result: its value says of which store."""

    key: str
    value: str
    time: int


class Entry(NamedTuple):
    """The permitted forms of a store's entry: its value, and each timestamp that it may have."""

    value: int
    times: frozenset[int]


Sown: TypeAlias = tuple[str, int | None, int, int | None, int | None]
"""An entry of a seed: key, value, timestamp, and start and end of a window."""
Content: TypeAlias = dict[Any, Entry]


class Oracle:
    """The stores of a query, by what they are for; those that it has not are missing.

    Attributes:
        stores: what each of them holds; of the one with versions, all of these, deletes included.
        versioned: whether it has any.
    """

    def __init__(self) -> None:
        self.stores: dict[str, Content] = {}
        self.versioned = True

    def copy(self) -> Self:
        return deepcopy(self)

    def evolve(self, before: Variant | None, after: Variant) -> None:
        """Go on with the stores of another variant: new ones are empty, plain ones may forget timestamps."""
        self.stores = {what: self.stores.get(what, {}) for what in after.stores}
        if self.versioned != after.versioned and "versions" in self.stores:
            convert = _with_history if after.versioned else _without_history
            self.stores["versions"] = convert(self.stores["versions"])
        self.versioned = after.versioned
        if before is not None and before.stamped and not after.stamped:
            self.forget_times()

    def sow(self, what: str, entries: Iterable[Sown], *, stamped: bool) -> None:
        """Begin a new store with these entries."""
        for key, value, time, start, end in entries:
            place: Any = key if start is None else (key, start, end)
            known = time if stamped or what not in OWN else UNKNOWN
            self.stores[what][(key, time) if what == "versions" and self.versioned else place] = _entry(value, known)

    def forget_times(self) -> None:
        """Forget which of the timestamps are still known."""
        for what in OWN.keys() & self.stores.keys():
            content = self.stores[what]
            self.stores[what] = {key: Entry(entry.value, entry.times | {UNKNOWN}) for key, entry in content.items()}

    @property
    def knows_times(self) -> bool:
        """Return whether a timestamp of an own store may be known."""
        return any(
            entry.times != {UNKNOWN} for what in OWN.keys() & self.stores.keys() for entry in self.stores[what].values()
        )

    def keys(self, what: str) -> list[str]:
        """Return the keys of which a store has something."""
        return sorted({place if isinstance(place, str) else place[0] for place in self.stores[what]})

    def forget(self, key: str, what: str) -> None:
        """Delete all that a store has for a key."""
        places = [place for place in self.stores[what] if key == (place if isinstance(place, str) else place[0])]
        for place in places:
            del self.stores[what][place]

    def process(self, records: Iterable[Record], stamped: bool) -> list[Told]:
        """Take one micro-batch; return its output: the last value of each key and store of a table of results."""
        told = [one for record in records for one in self._results(record, stamped)]
        return self._kinds(told) if "kinds" in self.stores else told

    def _results(self, record: Record, stamped: bool) -> Iterable[Told]:
        key, value, time = record
        before = self.stores.get("latest", {}).get(key)
        start = time - time % SPAN
        places = {"latest": key, "spans": (key, start, start + SPAN), "trips": (key, time, time + LATER)}
        for what in places.keys() & self.stores.keys():
            _put(self.stores[what], places[what], value, time if stamped else UNKNOWN)
        if "versions" in self.stores and self.versioned:
            self.stores["versions"][key, time] = _entry(value, time)
        elif "versions" in self.stores:
            _put(self.stores["versions"], key, value, time)
        yield Told(key, f"latest={None if before is None else before.value}", time)
        if value is None:
            return
        if "counts" in self.stores:
            counted = _count(self.stores["counts"], key, time)
            yield Told(key, f"counts={counted.value}", max(counted.times))
        if "windows" in self.stores:
            counted = _count(self.stores["windows"], places["spans"], time)
            yield Told(key, f"windows@{start}={counted.value}", max(counted.times))

    def _kinds(self, told: Iterable[Told]) -> list[Told]:
        """Return the last count of results of each kind."""
        last: dict[str, Told] = {}
        for one in told:
            kind = one.value.partition("=")[0].partition("@")[0]
            counted = _count(self.stores["kinds"], kind, one.time)
            last[kind] = Told(kind, f"kinds={counted.value}", max(counted.times))
        return list(last.values())

    def content(self, what: str) -> Content:
        """Return what a store shows."""
        content = self.stores[what]
        return _with_ends(content) if what == "versions" and self.versioned else content


def _entry(value: int | None, time: int) -> Entry:
    """Return an entry whose time is known; None is for a delete, which only a store with versions keeps."""
    return Entry(value, frozenset({time}))  # type: ignore[arg-type]


def _put(content: Content, key: Any, value: int | None, time: int) -> None:
    if value is None:
        content.pop(key, None)
    else:
        content[key] = _entry(value, time)


def _count(content: Content, key: Any, time: int) -> Entry:
    before = content.get(key, Entry(0, frozenset({UNKNOWN})))
    content[key] = Entry(before.value + 1, frozenset({max(time, *before.times)}))
    return content[key]


def _with_history(table: Content) -> Content:
    """Return each value as the only version of its key."""
    return {(key, time): entry for key, entry in table.items() for time in entry.times}


def _without_history(versions: Content) -> Content:
    """Return the latest version of each key, unless that is a delete."""
    latest = {key: versions[key, time] for key, time in sorted(versions)}
    return {key: entry for key, entry in latest.items() if entry.value is not None}


def _with_ends(versions: Content) -> Content:
    """Return each version, no deletion among them, with the time at which the next one begins."""
    found: Content = {}
    for key in {key for key, _ in versions}:
        times = sorted(time for one, time in versions if one == key)
        for time, until in zip(times, [*times[1:], None], strict=True):
            if versions[key, time].value is not None:
                found[key, time, until] = versions[key, time]
    return found


def shown(found: Mapping[Any, tuple[int, int | None]], expected: Content) -> list[str]:
    """Return what a store shows and should not, or should and does not; a time of None says nothing."""
    wrong = [
        f"{key}: {found.get(key)}, not {entry}" for key, entry in expected.items() if not _fits(found.get(key), entry)
    ]
    return wrong + [f"{key}: {found[key]}, not nothing" for key in found.keys() - expected.keys()]


def _fits(found: tuple[int, int | None] | None, entry: Entry) -> bool:
    return found is not None and found[0] == entry.value and (found[1] is None or found[1] in entry.times)


def comparable(told: Iterable[Told], *, tables: bool) -> Counter[Told]:
    """Return results, in whatever order keys come; of ``tables`` only the last of each key."""
    rows = list(told)
    return Counter({row.key: row for row in rows}.values() if tables else rows)
