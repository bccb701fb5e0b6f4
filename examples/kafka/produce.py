"""Sends the sample orders and prices: ``produce.py BROKER 1`` the first part, ``produce.py BROKER 2`` the second.

Topics that are missing are made, also those that the jobs write to. It needs ``pip install kafka-python``.
"""

import argparse
import json
from datetime import UTC, datetime
from typing import Any

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

TOPICS = ("orders", "prices", "priced", "catalog", "large-orders")
# Topic, key, value (None: a tombstone), time of day, headers.
SAMPLES: list[list[tuple[str, str, dict[str, Any] | None, str, list[tuple[str, bytes]]]]] = [
    [
        ("prices", "apple", {"price": 0.5}, "09:00", []),
        ("prices", "pear", {"price": 0.8}, "09:00", []),
        ("prices", "apple", {"price": 0.6}, "10:00", []),
        ("orders", "1", {"product": "apple", "pieces": 3}, "09:30", [("trace", b"a1")]),
        ("orders", "2", {"product": "pear", "pieces": 12}, "09:10", [("trace", b"a2"), ("gift", b"")]),
    ],
    [
        ("prices", "pear", None, "11:00", [("reason", b"sold out")]),
        ("orders", "3", {"product": "apple", "pieces": 2}, "09:45", [("trace", b"a3")]),  # late
        ("orders", "4", {"product": "pear", "pieces": 1}, "11:30", []),
    ],
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("broker", help="such as localhost:9092")
    parser.add_argument("part", type=int, choices=range(1, len(SAMPLES) + 1))
    for topic in TOPICS:
        parser.add_argument(f"--{topic}", default=topic, help="the topic's name")
    given = vars(parser.parse_args())
    names = {topic: given[topic.replace("-", "_")] for topic in TOPICS}

    admin = KafkaAdminClient(bootstrap_servers=given["broker"])
    forever = {"retention.ms": "-1"}  # the samples are of a day long past
    for name in set(names.values()) - set(admin.list_topics()):
        admin.create_topics([NewTopic(name, 3, 1, topic_configs=forever)])
    admin.close()

    producer = KafkaProducer(bootstrap_servers=given["broker"])
    for topic, key, value, at, headers in SAMPLES[given["part"] - 1]:
        time = datetime.fromisoformat(f"2026-01-05T{at}").replace(tzinfo=UTC)
        content = None if value is None else json.dumps(value).encode()
        producer.send(names[topic], content, key.encode(), headers, timestamp_ms=int(time.timestamp() * 1000))
    producer.flush()


if __name__ == "__main__":
    main()
