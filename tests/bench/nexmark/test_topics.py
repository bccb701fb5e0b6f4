"""Topics of Kafka as the source of Nexmark's events, without a broker: how they are cut, and what is refused."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from millpond.bench.nexmark.events import Site
from millpond.bench.nexmark.files import events_of
from millpond.bench.nexmark.topics import NEWEST_CONNECTOR, check_broker, connector, even_rows, offsets_limit
from millpond.errors import ConfigurationError
from tests.bench.listening import listening

POM = Path(__file__).resolve().parents[2] / "kafka" / "pom.xml"


@pytest.mark.parametrize(("rows", "group", "partitions"), [(1, 1, 1), (600, 70, 3), (1_000, 1_000, 2), (777, 21, 8)])
def test_each_partition_gets_as_many_events_of_a_kind_in_every_micro_batch(
    rows: int, group: int, partitions: int
) -> None:
    site = Site(rate=1_000, out_of_order=group)
    even = even_rows(rows, site, partitions)
    assert even >= rows
    assert even_rows(even, site, partitions) == even
    counts = [{name: len(table) for name, table in events_of(site, number * even, even).items()} for number in range(3)]
    assert counts[0] == counts[1] == counts[2]
    assert {count % partitions for count in counts[0].values()} == {0}


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 49, 98, 200])
@pytest.mark.parametrize("rows", [1, 2, 1_000])
def test_the_share_of_each_partition_in_a_limit_is_its_rows_by_the_arithmetic_of_spark(
    rows: int, partitions: int
) -> None:
    limit = offsets_limit(rows * partitions, partitions)
    assert {int(limit * (left * rows / (left * rows * partitions))) for left in range(1, 20)} == {rows}
    if partitions == 49:
        assert int(rows * partitions * (rows / (rows * partitions))) < rows


def test_a_place_where_no_broker_is_is_refused_until_one_is_started_there_or_another_is_named() -> None:
    with listening() as address:
        pass
    advice = rf"no broker of Kafka answers at {address} \(.*; start one there, .* or write --kafka HOST:PORT with"
    with pytest.raises(ConfigurationError, match=advice):
        check_broker(address)
    with listening() as another:
        check_broker(another)
        check_broker(f"{address}, {another}")
    with listening(int(address.partition(":")[2])):
        check_broker(address)


@pytest.mark.parametrize("wrong", ["broker", "broker:", ":9092", "broker:kafka", "broker:70000", ""])
def test_what_is_no_address_is_refused_with_the_form_of_one(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match="is no address of a broker; write --kafka HOST:PORT"):
        check_broker(wrong)


def test_the_connector_is_that_of_the_release_of_spark_or_the_newest_that_there_is() -> None:
    artifact = "org.apache.spark:spark-sql-kafka-0-10_2.13"
    assert connector("4.1.1") == f"{artifact}:4.1.1"
    assert connector("4.1.0.dev2") == f"{artifact}:4.1.0.dev2"
    assert connector("4.3.0") == connector("4.10.0") == f"{artifact}:{NEWEST_CONNECTOR}"
    assert re.findall("<connector.version>(.*)</connector.version>", POM.read_text()) == [NEWEST_CONNECTOR]
