"""Random records for the topologies, of a seed that a failing test shows."""

from random import Random

from tests.kafka.client import Message

KEYS = "abcdefg"

IN_ORDER = {"stream-stream", "foreign-key"}
"""Where docs/differences-from-kafka-streams.md has other results for records out of order."""

WITH_TOMBSTONES = {"stream-table", "table-table", "foreign-key"}


def random_records(seed: int, name: str, count: int = 300) -> list[tuple[str, Message]]:
    """Records of ``left`` and ``right``, with headers; up to 40 ms late, unless the topology takes them in order."""
    random = Random(seed)
    sides = ("left",) if name in ("count", "windowed-count", "suppress", "session") else ("left", "right")
    time, made = 1_000, []
    for number in range(count):
        time += random.choice((0, 1, 1, 3, 30 if random.random() < 0.1 else 2))
        late = 0 if name in IN_ORDER else random.choice((0, 0, 5, 40))
        topic = random.choice(sides)
        tombstone = name in WITH_TOMBSTONES and topic == "right" and random.random() < 0.2
        value = None if tombstone else f"{random.choice(KEYS)}{number}"
        headers = (("number", str(number).encode()), ("side", topic.encode()))
        made.append((topic, Message(random.choice(KEYS), value, time - late, headers)))
    return made
