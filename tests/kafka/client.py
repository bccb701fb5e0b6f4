"""The messages that the tests write into topics, and read out of them."""

from collections.abc import Iterable
from typing import NamedTuple

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    """A record of a topic; keys and values are text, a value of None is a tombstone, times are in milliseconds."""

    key: str
    value: str | None
    timestamp: int
    headers: Headers = ()


def create_topics(address: str, *topics: str, partitions: int = 3) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics])
    admin.close()


def write(address: str, messages: Iterable[tuple[str, Message]]) -> None:
    """Write messages, each to its topic; those of a key go to one partition and keep their order."""
    producer = KafkaProducer(bootstrap_servers=address, linger_ms=5)
    for topic, (key, value, timestamp, headers) in messages:
        content = None if value is None else value.encode()
        producer.send(topic, content, key.encode(), headers=list(headers), timestamp_ms=timestamp)
    producer.flush()
    producer.close()


def read(address: str, topic: str) -> list[Message]:
    """Return all messages of a topic up to now, partition by partition, in the order of offsets."""
    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
    partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
    ends = consumer.end_offsets(partitions)
    messages = []
    for partition in partitions:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        while consumer.position(partition) < ends[partition]:
            for record in consumer.poll(timeout_ms=1000).get(partition, []):
                value = None if record.value is None else record.value.decode()
                messages.append(Message(record.key.decode(), value, record.timestamp, tuple(record.headers)))
    consumer.close()
    return messages


def latest(messages: Iterable[Message]) -> dict[str, str]:
    """Return the table that a topic describes: of each key the last value, unless that is a tombstone."""
    values = {message.key: message.value for message in messages}
    return {key: value for key, value in values.items() if value is not None}
