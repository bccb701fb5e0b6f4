"""Random inputs: records of several topics whose time runs on, stands still, goes back and jumps."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final

from tests.kafka.drafts import KEYS, VALUES, Topic

STARTS: Final = (0, 7, 1_000, 86_400_000)
STEPS: Final = (0, 0, 1, 1, 2, 3, 5, 8, 13)
JUMPS: Final = (60, 200, 1_000)
LATER: Final = 10_000


def random_input(rng: Random, topics: Mapping[str, Topic], *, wall_clock: bool = False) -> list[dict[str, Any]]:
    """Return so many records as one can still read."""
    records: list[dict[str, Any]] = []
    taken: set[tuple[str, str | None, int]] = set()
    now = start = rng.choice(STARTS)
    jumps = rng.choice((0.0, 0.04, 0.1))
    late = rng.choice((0.0, 0.1, 0.3))
    headers = rng.random() < 0.3
    for number in range(rng.randint(4, 40)):
        now += rng.choice(JUMPS) if rng.random() < jumps else rng.choice(STEPS)
        if wall_clock and rng.random() < 0.2:
            records.append({"advance_wall_clock_ms": rng.choice((1, 5, 10, 33))})
            continue
        name = rng.choice(list(topics))
        topic = topics[name]
        time = max(start, now - rng.choice((1, 4, 15, 40))) if rng.random() < late else now
        key = None if rng.random() < topic.keyless else rng.choice(KEYS)
        while topic.distinct_times and (name, key, time) in taken:
            time += 1
        taken.add((name, key, time))
        record = {"topic": name, "key": key, "value": _value(rng, topic, time), "ts": time}
        records.append(record | ({"headers": {"n": str(number)}} if headers else {}))
    return records


def last_records(records: Sequence[Mapping[str, Any]], topics: Iterable[str]) -> list[dict[str, Any]]:
    """Return records of a far later time, after which nothing waits that came before."""
    later = max(record["ts"] for record in records) + LATER
    return [{"topic": topic, "key": "z", "value": "z", "ts": later} for topic in topics for _ in range(2)]


def _value(rng: Random, topic: Topic, time: int) -> str | None:
    if topic.calls is not None:
        return _call(rng, topic.calls, time)
    return None if rng.random() < topic.nulls else rng.choice(VALUES)


def _call(rng: Random, kind: str, time: int) -> str:
    name, arguments = rng.choice(list(_CALLS[kind].items()))
    if rng.random() < 0.5:
        name, arguments = "put", _CALLS[kind]["put"]
    return json.dumps({"op": name, "args": [_ARGUMENTS[argument](rng, time) for argument in arguments.split()]})


def _near(rng: Random, time: int) -> int:
    return max(0, time + rng.choice((-40, -15, -4, -1, 0, 0, 0, 3)))


_ARGUMENTS: Final[dict[str, Callable[[Random, int], Any]]] = {
    "key": lambda rng, time: rng.choice(KEYS),
    "bound": lambda rng, time: rng.choice((*KEYS, None)),
    "value": lambda rng, time: rng.choice((*VALUES, None)),
    "time": _near,
    "now": lambda rng, time: time,
    "earliest": lambda rng, time: max(0, time - rng.choice((0, 5, 20, 60))),
    "latest": lambda rng, time: max(0, time + rng.choice((-5, 0, 5))),
}

_CALLS: Final[dict[str, dict[str, str]]] = {
    "kv": {
        "put": "key value",
        "putIfAbsent": "key value",
        "delete": "key",
        "get": "key",
        "range": "bound bound",
        "reverseRange": "bound bound",
        "all": "",
        "reverseAll": "",
    },
    "timestamped_kv": {
        "put": "key value now",
        "putIfAbsent": "key value now",
        "delete": "key",
        "get": "key",
        "range": "bound bound",
        "reverseRange": "bound bound",
        "all": "",
        "reverseAll": "",
    },
    "versioned": {"put": "key value time", "delete": "key time", "get": "key", "getAsOf": "key time"},
    "window": {
        "put": "key value time",
        "fetch": "key time",
        "fetchRange": "key earliest latest",
        "backwardFetchRange": "key earliest latest",
        "fetchKeys": "key key earliest latest",
        "fetchAll": "earliest latest",
        "all": "",
    },
    "session": {
        "put": "key earliest now value",
        "remove": "key earliest now",
        "fetchSession": "key earliest now",
        "fetch": "key",
        "fetchKeys": "key key",
        "findSessions": "key earliest latest",
    },
}
"""The calls of each kind of store, and what they take."""
