"""The demo's topologies in the in-process driver, without Spark: the same answers as the independent as-of join."""

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet
import pytest

from millpond.demo import data, topologies, truth
from millpond.processors import Consumed, Topology, TopologyDriver
from millpond.stores.encoding.serdes import StructSerde, serde


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> data.Inputs:
    """The first 3,000 flights to arrive and their weather, in files of a hundred."""
    prepared = data.prepare(tmp_path_factory.mktemp("demo") / "input", 100)
    prepared.arrive(30)
    return prepared


def rows(path: Path, consumed: Consumed) -> list[tuple[Any, Any, int]]:
    """Return the records of a file: of each row, the fields that the topic's values have."""
    values = serde(consumed.value_serde or "")
    assert isinstance(values, StructSerde)
    names = [name for name, _ in values.layout.fields]
    return [
        (row[consumed.key], {name: row[name] for name in names}, row[consumed.timestamp])
        for row in pyarrow.parquet.read_table(path).to_pylist()
    ]


def records_of(topology: Topology, sink: str, inputs: data.Inputs, backend: str = "memory") -> list[Any]:
    """Return the records that come out at ``sink``; a file of each topic is a micro-batch, the weather first."""
    with TopologyDriver(topology, backend=backend) as driver:
        for number in range(inputs.arrived_files):
            for topic, consumed in (("weather", topologies.WEATHER), ("flights", topologies.FLIGHTS)):
                if topic in topology.sources:
                    driver.pipe_all(topic, rows(inputs.arrived(topic) / f"{number:05d}.parquet", consumed))
        return driver.read(sink)


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_every_flight_gets_the_weather_of_its_departure_however_late_it_comes(
    inputs: data.Inputs, backend: str
) -> None:
    joined = records_of(topologies.flights_weather(), "flights_weather", inputs, backend)
    found = pd.DataFrame([record.value for record in joined])
    assert truth.compare_flights(found, truth.flights_with_weather(3_000)) == truth.Agreement(3_000, 3_000, 0)


def test_a_flight_without_any_observation_is_kept_with_nulls() -> None:
    flight = {"carrier": "UA", "flight": 1, "tailnum": None, "origin": "EWR", "dest": "IAH", "sched_dep_ms": 5}
    with TopologyDriver(topologies.flights_weather()) as driver:
        driver.pipe("flights", "EWR", flight, timestamp=5)
        (record,) = driver.read("flights_weather")
    assert record.value == flight | dict.fromkeys(topologies.OBSERVED)


def test_the_last_count_of_each_carrier_is_the_number_of_its_flights_and_its_latest_departure(
    inputs: data.Inputs,
) -> None:
    counted = records_of(topologies.carrier_counts(), "carrier_counts", inputs)
    found = pd.DataFrame(counted).rename(columns={"key": "carrier", "value": "count"})
    expected = truth.carrier_counts(truth.flights_with_weather(3_000))
    assert truth.compare_counts(found, expected).complete


def test_a_carrier_is_reported_once_per_batch_at_most(inputs: data.Inputs) -> None:
    counted = records_of(topologies.carrier_counts(), "carrier_counts", inputs)
    carriers = {record.key for record in counted}
    assert len(carriers) < len(counted) <= len(carriers) * inputs.arrived_files
