"""Every example of KIP-904, and what it says about grouping a table by another key."""

from collections import Counter
from typing import Any

import pytest

from millpond.errors import ConfigurationError, TopologyError
from millpond.processors import Batch, Consumed, Grouped, KTable, Materialized, Record, StreamsBuilder, Task
from millpond.processors.runtime.change import Change, ChangeSerde
from millpond.releases import OLDEST_READERS, Numbered, oldest_reader
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import STRING, Serde
from tests.processors.driving import Input, drive, last_values, random_records

OLD_RELEASE = "3.4"

Row = tuple[Any, Any, int]


def updates(*rows: Row) -> list[Input]:
    return [Input("in", key, value, timestamp) for key, value, timestamp in rows]


def counted_by_key(builder: StreamsBuilder) -> KTable:
    return builder.table("in").group_by(lambda key, value: (key, value)).count()


def counted_by_value(builder: StreamsBuilder) -> KTable:
    return builder.table("in").group_by(lambda key, value: (value, value)).count()


def animals_by_zoo(builder: StreamsBuilder) -> KTable:
    """Return the set of each zoo's animals, with an adder and a subtractor that do not commute."""

    def add(zoo: str, animal: str, animals: list[str]) -> list[str]:
        return sorted({*animals, animal})

    def remove(zoo: str, animal: str, animals: list[str]) -> list[str]:
        return [other for other in animals if other != animal]

    zoos = builder.table("in").group_by(lambda key, value: (key, value))
    return zoos.aggregate(list, add, remove, Materialized(value_serde="json"))


def history_by_first_letter(builder: StreamsBuilder) -> KTable:
    """Return a table of what was subtracted from and added to each group, in order."""
    groups = builder.table("in").group_by(lambda key, value: (value[0], value))
    return groups.aggregate(
        str,
        lambda key, value, history: f"{history}+{value}",
        lambda key, value, history: f"{history}-{value}",
        Materialized(value_serde="string"),
    )


def test_the_count_of_the_kip_shows_no_transient_state() -> None:
    output = drive(counted_by_key, updates(("1", "", 8), ("1", "", 9)))
    assert output == [Record("1", 1, 8), Record("1", 1, 9)]


def test_the_count_of_the_kip_shows_the_transient_state_while_upgrading_from_an_old_release() -> None:
    output = drive(counted_by_key, updates(("1", "", 8), ("1", "", 9)), upgrade_from=OLD_RELEASE)
    assert output == [Record("1", 1, 8), Record("1", 0, 9), Record("1", 1, 9)]


def test_the_zoo_still_has_its_tiger_after_the_tiger_is_confirmed() -> None:
    output = drive(animals_by_zoo, updates(("zoo1", "tiger", 8), ("zoo1", "tiger", 9)))
    assert output == [Record("zoo1", ["tiger"], 8), Record("zoo1", ["tiger"], 9)]


def test_the_zoo_subtracts_before_it_adds_while_upgrading_too() -> None:
    output = drive(animals_by_zoo, updates(("zoo1", "tiger", 8), ("zoo1", "tiger", 9)), upgrade_from=OLD_RELEASE)
    assert [record.value for record in output] == [["tiger"], [], ["tiger"]]


def test_an_unchanged_group_is_updated_once_and_subtracts_first() -> None:
    output = drive(history_by_first_letter, updates(("k", "a1", 1), ("k", "a2", 2)))
    assert output == [Record("a", "+a1", 1), Record("a", "+a1-a1+a2", 2)]


def test_a_changed_group_makes_two_updates_the_old_group_first() -> None:
    output = drive(history_by_first_letter, updates(("k", "a1", 1), ("k", "b2", 2)))
    assert output == [Record("a", "+a1", 1), Record("a", "+a1-a1", 2), Record("b", "+b2", 2)]


def test_a_deleted_row_leaves_its_group() -> None:
    output = drive(history_by_first_letter, updates(("k", "a1", 1), ("j", "a2", 2), ("k", None, 3)))
    assert output[-1] == Record("a", "+a1+a2-a1", 3)


def test_the_result_s_time_is_the_latest_of_all_that_made_it() -> None:
    output = drive(counted_by_value, updates(("k", "a", 9), ("j", "a", 4)))
    assert [record.timestamp for record in output] == [9, 9]


class Place:
    """A key that equals only itself."""

    def __init__(self, name: str) -> None:
        self.name = name


class EqualPlace(Place):
    """A key that equals keys of the same name."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EqualPlace) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


class PlaceSerde(Serde[Place]):
    name = "place"

    def serialize(self, value: Place) -> bytes:
        return value.name.encode()

    def deserialize(self, data: bytes) -> Place:
        return EqualPlace(data.decode())


def counts_of_places(kind: type[Place]) -> list[int]:
    def build(builder: StreamsBuilder) -> KTable:
        grouped = Grouped(PlaceSerde(), "string")
        return builder.table("in").group_by(lambda key, value: (kind("here"), value), grouped).count()

    return [record.value for record in drive(build, updates(("k", "x", 1), ("k", "y", 2)))]


def test_keys_that_are_equal_but_not_the_same_object_are_one_group() -> None:
    assert counts_of_places(EqualPlace) == [1, 1]


def test_keys_without_equality_get_the_old_behavior_of_two_messages() -> None:
    assert counts_of_places(Place) == [1, 0, 1]


def test_one_object_that_is_returned_as_key_each_time_is_one_group_without_equality() -> None:
    here = Place("here")

    def build(builder: StreamsBuilder) -> KTable:
        grouped = Grouped(PlaceSerde(), "string")
        return builder.table("in").group_by(lambda key, value: (here, value), grouped).count()

    assert [record.value for record in drive(build, updates(("k", "x", 1), ("k", "y", 2)))] == [1, 1]


def messages(upgrade_from: str | None, *rows: Row) -> list[tuple[Change[str], bytes]]:
    """Return what a group-by sends through its repartition topic, and the bytes."""
    builder = StreamsBuilder(upgrade_from=upgrade_from)
    builder.table("in", Consumed("string", "string")).group_by(lambda key, value: (value[0], value)).count().to("out")
    first = builder.build().subtopologies[0]
    stores = {name: spec.open(Transaction(MemoryBackend())) for name, spec in first.stores.items()}
    task = Task(first, stores)
    task.process("in", Batch(*map(list, zip(*rows, strict=True))))
    ((topic, batches),) = task.take().items()
    serde = first.sinks[topic].produced.value_serde
    assert isinstance(serde, Serde)
    return [(change, serde.serialize(change)) for batch in batches for change in batch.values]


def test_one_message_carries_both_values_where_the_group_is_unchanged() -> None:
    sent = messages(None, ("k", "tiger", 8), ("k", "tapir", 9))
    assert sent == [(Change("tiger", None), b"tiger\x01"), (Change("tapir", "tiger"), b"\x0atapirtiger\x02")]


def test_the_old_release_gets_only_messages_that_it_can_read() -> None:
    sent = messages(OLD_RELEASE, ("k", "tiger", 8), ("k", "tapir", 9))
    assert [data for _, data in sent] == [b"tiger\x01", b"tiger\x00", b"tapir\x01"]


@pytest.mark.parametrize("upgrade_from", ["3.5", "3.9", "4.0"])
def test_a_release_that_knows_the_format_gets_it(upgrade_from: str) -> None:
    assert len(messages(upgrade_from, ("k", "tiger", 8), ("k", "tapir", 9))) == 2


@pytest.mark.parametrize("upgrade_from", ["0.10.0", "2.8", "3.4"])
def test_a_release_that_does_not_know_the_format_does_not_get_it(upgrade_from: str) -> None:
    assert len(messages(upgrade_from, ("k", "tiger", 8), ("k", "tapir", 9))) == 3


def test_upgrade_from_is_a_release() -> None:
    with pytest.raises(ConfigurationError, match=r"such as '3\.4'"):
        messages("yesterday", ("k", "tiger", 8))


@pytest.mark.parametrize("upgrade_from", ["0.1.0", "0.2.0", "0.9.0"])
def test_a_release_of_millpond_is_not_taken_for_an_old_one_of_kafka_streams(upgrade_from: str) -> None:
    with pytest.raises(ConfigurationError, match=r"Kafka Streams was 0\.10\.0; leave it out here"):
        messages(upgrade_from, ("k", "tiger", 8))


def test_changes_with_both_values_are_read_by_every_release_of_millpond() -> None:
    """So a job that is upgraded from one of them sends what it always sends."""
    both = ChangeSerde(STRING).serialize(Change("new", "old"))
    assert oldest_reader(Numbered.CHANGE, both[-1]) == min(OLDEST_READERS[Numbered.CHANGE].values())


def test_a_group_that_loses_its_last_row_stays_with_a_count_of_0() -> None:
    output = drive(counted_by_value, updates(("k", "a", 1), ("k", None, 2)))
    assert output == [Record("a", 1, 1), Record("a", 0, 2)]


def test_a_subtractor_that_returns_none_deletes_the_group_and_the_next_row_begins_anew() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        groups = builder.table("in").group_by(lambda key, value: ("g", value))
        return groups.aggregate(
            int,
            lambda key, value, total: total + len(value),
            lambda key, value, total: (total - len(value)) or None,
            Materialized(value_serde="int64"),
        )

    output = drive(build, updates(("k", "xx", 5), ("k", None, 6), ("j", "yyy", 3)))
    assert output == [Record("g", 2, 5), Record("g", None, 6), Record("g", 3, 3)]


def test_a_row_whose_group_or_value_is_none_takes_no_part() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        groups = builder.table("in").group_by(lambda key, value: (None if value == "no" else "g", value))
        return groups.reduce(lambda total, value: total + value, lambda total, value: total.replace(value, "", 1))

    output = drive(build, updates(("k", "no", 1), ("k", "a", 2), ("j", "b", 3), ("k", "no", 4)))
    assert [record.value for record in output] == ["a", "ab", "b"]


def test_out_of_order_rows_of_a_versioned_table_take_no_part() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        table = builder.table("in", None, Materialized.versioned(history_retention=1000))
        return table.group_by(lambda key, value: (value, value)).count()

    output = drive(build, updates(("k", "a", 10), ("k", "b", 5), ("k", "c", 20)))
    assert output == [Record("a", 1, 10), Record("a", 0, 20), Record("c", 1, 20)]


def test_a_table_whose_values_cannot_travel_says_so() -> None:
    builder = StreamsBuilder(value_serde=None)
    left, right = (builder.table(topic, Consumed(value_serde="string")) for topic in ("left", "right"))
    table = left.join(right, max)
    with pytest.raises(TopologyError, match=r"Grouped\(value_serde"):
        table.group_by(lambda key, value: (key, value)).count()


def table_updates(seed: int) -> list[Input]:
    return [
        record._replace(value=None) if number % 5 == 4 else record
        for number, record in enumerate(random_records(seed, 200, keys="abcdefg"))
    ]


@pytest.mark.parametrize("upgrade_from", [None, OLD_RELEASE])
@pytest.mark.parametrize("seed", range(20))
def test_counts_are_those_of_the_rows_that_the_table_has_at_the_end(seed: int, upgrade_from: str | None) -> None:
    records = table_updates(seed)
    rows = {record.key: record.value for record in records}
    expected = Counter(value for value in rows.values() if value is not None)
    counts = last_values(drive(counted_by_value, records, upgrade_from=upgrade_from))
    assert {group: count for group, count in counts.items() if count} == expected


@pytest.mark.parametrize("seed", range(10))
def test_a_micro_batch_makes_the_same_updates_as_its_records_one_by_one(seed: int) -> None:
    records = table_updates(seed)
    for build in (counted_by_value, history_by_first_letter, animals_by_zoo):
        assert drive(build, records, size=17) == drive(build, records)


@pytest.mark.parametrize("seed", range(10))
def test_with_caching_only_the_last_update_of_a_group_in_a_micro_batch_is_emitted(seed: int) -> None:
    def cached(builder: StreamsBuilder) -> KTable:
        groups = builder.table("in").group_by(lambda key, value: (value, value))
        return groups.count(Materialized(caching=True))

    records = table_updates(seed)
    output = drive(cached, records, size=len(records))
    assert len(output) == len({record.key for record in output})
    assert last_values(output) == last_values(drive(counted_by_value, records))
