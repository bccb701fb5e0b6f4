"""The demo's input: always the same files, in an order that lets both topics advance together."""

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

from millpond.demo import data
from millpond.errors import ConfigurationError

DAY_MS = 24 * 3600 * 1000


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> data.Inputs:
    """All input in files of 50,000 flights, arrived."""
    prepared = data.prepare(tmp_path_factory.mktemp("demo") / "input", 50_000)
    prepared.arrive()
    return prepared


def files(inputs: data.Inputs, topic: str) -> list[Path]:
    return sorted(inputs.arrived(topic).iterdir())


def read(paths: list[Path]) -> pa.Table:
    return pa.concat_tables(pyarrow.parquet.read_table(path) for path in paths)


def is_sorted(table: pa.Table, column: str) -> bool:
    return table[column].equals(table.sort_by(column)[column])


def test_the_files_hold_every_flight_and_every_observation_once(inputs: data.Inputs) -> None:
    flights, weather = (read(files(inputs, topic)) for topic in ("flights", "weather"))
    assert flights.num_rows == inputs.cut.flights == 336_776
    assert weather.num_rows == 26_115
    assert flights.group_by(["sched_dep_ms", "carrier", "flight", "origin", "dest"]).aggregate([]).num_rows == 336_776
    assert weather.group_by(["weather_time_ms", "origin"]).aggregate([]).num_rows == 26_115


def test_a_flight_is_timed_in_utc_by_its_scheduled_departure_not_by_new_yorks_clock() -> None:
    first = pc.field("flight") == 1545
    departures = data.flights().filter(first & (pc.field("carrier") == "UA") & (pc.field("dest") == "IAH"))
    assert pc.min(departures["sched_dep_ms"]).as_py() == 1_357_035_300_000  # 2013-01-01 10:15 UTC, 05:15 in New York


def test_flights_arrive_out_of_order_by_up_to_two_days() -> None:
    flights = data.flights()
    delays = pc.subtract(flights["arrival_ms"], flights["sched_dep_ms"])
    assert pc.min(delays).as_py() >= 0
    assert 1.99 * DAY_MS < pc.max(delays).as_py() < 2 * DAY_MS
    assert is_sorted(flights, "arrival_ms")
    assert not is_sorted(flights, "sched_dep_ms")


def test_no_flight_comes_in_an_earlier_file_than_an_observation_that_it_needs(inputs: data.Inputs) -> None:
    pairs = list(zip(files(inputs, "flights"), files(inputs, "weather"), strict=True))
    for (flights, _), (_, later_weather) in pairwise(pairs):
        latest_flight = pc.max(read([flights])["sched_dep_ms"]).as_py()
        assert pc.min(read([later_weather])["weather_time_ms"]).as_py() > latest_flight


def test_two_preparations_make_the_same_files(inputs: data.Inputs, tmp_path: Path) -> None:
    again = data.prepare(tmp_path / "input", 50_000)
    again.arrive()
    for topic in data.TOPICS:
        for one, other in zip(files(inputs, topic), files(again, topic), strict=True):
            assert (one.name, one.read_bytes(), one.stat().st_mtime) == (
                other.name,
                other.read_bytes(),
                other.stat().st_mtime,
            )


def test_what_is_prepared_is_used_again_and_nothing_unfinished_is_left(tmp_path: Path) -> None:
    (tmp_path / ".input-unfinished" / "waiting" / "flights").mkdir(parents=True)
    first = data.prepare(tmp_path / "input", 100_000)
    assert data.prepare(tmp_path / "input", 100_000) == first
    assert [path.name for path in tmp_path.iterdir()] == ["input"]


def test_another_cut_of_prepared_input_is_refused_and_the_message_says_what_to_do(tmp_path: Path) -> None:
    data.prepare(tmp_path / "input", 100_000)
    with pytest.raises(ConfigurationError, match="go on with --batch-rows 100000"):
        data.prepare(tmp_path / "input", 50_000)


def test_files_arrive_in_pairs_and_only_as_many_as_asked_for(tmp_path: Path) -> None:
    inputs = data.prepare(tmp_path / "input", 100_000)
    assert inputs.cut.files == 4
    inputs.arrive(1)
    inputs.mark_processed()
    inputs.arrive(2)
    for topic in data.TOPICS:
        assert [path.name for path in files(inputs, topic)] == ["00000.parquet", "00001.parquet", "00002.parquet"]
    assert inputs.arrived_rows == 300_000


def test_a_run_that_never_finished_is_ended_before_more_files_arrive(tmp_path: Path) -> None:
    inputs = data.prepare(tmp_path / "input", 100_000)
    inputs.arrive(1)
    inputs.arrive(1)
    assert inputs.arrived_files == 1
    inputs.mark_processed()
    inputs.arrive(1)
    assert inputs.arrived_files == 2
    inputs.arrive()
    assert (inputs.arrived_files, inputs.arrived_rows) == (4, 336_776)


def test_a_kill_while_files_arrive_loses_none(tmp_path: Path) -> None:
    inputs = data.prepare(tmp_path / "input", 100_000)
    waiting = tmp_path / "input" / "waiting" / "weather" / "00000.parquet"
    waiting.rename(inputs.arrived("weather") / waiting.name)
    inputs.arrive(1)
    assert [len(files(inputs, topic)) for topic in data.TOPICS] == [1, 1]
