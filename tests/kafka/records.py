"""Random records for the topologies, of a seed that a failing test shows."""

from random import Random

from tests.kafka.client import Headers, Message

KEYS = "abcdefg"

IN_ORDER = {"stream-stream", "foreign-key"}
"""Where docs/differences-from-kafka-streams.md has other results for records out of order."""

IN_BURSTS = {"stream-stream"}
"""Where it has other times for results of records that still wait when others have waited long enough."""

WAIT = 18
"""How long a record of ``stream-stream`` waits for a partner: the window's 12 ms and its 6 ms of grace."""

WITH_TOMBSTONES = {"stream-table": ("right",), "table-table": ("left", "right"), "foreign-key": ("left", "right")}
"""The tables that have tombstones."""


def random_records(seed: int, name: str, count: int = 300, *, bursts: bool = True) -> list[tuple[str, Message]]:
    """Return records of ``left`` and ``right``; up to 40 ms late, unless the topology takes them in order.

    Without ``bursts`` no topology has the pauses of ``IN_BURSTS``.

    The first header of each is its ``number``, counted from 0; the others are random.
    """
    random = Random(seed)
    sides = ("left",) if name in ("count", "windowed-count", "suppress", "session") else ("left", "right")
    time, made = 1_000, []
    start = time
    for number in range(count):
        time += random.choice((0, 1, 1, 3, 30 if random.random() < 0.1 else 2))
        if bursts and name in IN_BURSTS and time > start + WAIT:
            time += random.choice((WAIT + 1, 40))
            start = time
        late = 0 if name in IN_ORDER else random.choice((0, 0, 5, 40))
        topic = random.choice(sides)
        tombstone = topic in WITH_TOMBSTONES.get(name, ()) and random.random() < 0.2
        value = None if tombstone else f"{random.choice(KEYS)}{number}"
        headers = (("number", str(number).encode()), *_random_headers(random))
        made.append((topic, Message(random.choice(KEYS), value, time - late, headers)))
    return made


def _random_headers(random: Random) -> Headers:
    """Return no headers or some, whose names may repeat."""
    names = random.choices(("", "trace", "é"), k=random.choice((0, 0, 1, 3)))
    return tuple((name, random.choice((b"", random.randbytes(4)))) for name in names)
