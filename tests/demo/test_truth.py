"""The independent answer, checked against rows that a reader can look up in the package's files."""

import pandas as pd
import pytest

from millpond.demo import truth


@pytest.fixture(scope="module")
def answer() -> pd.DataFrame:
    """All flights with their weather."""
    return truth.flights_with_weather()


def test_every_flight_stands_in_the_truth_once(answer: pd.DataFrame) -> None:
    assert len(answer) == 336_776
    assert not answer.duplicated(truth.KEY).any()
    assert list(answer.columns) == truth.COLUMNS


def test_the_first_flight_of_the_year_has_the_weather_of_its_hour(answer: pd.DataFrame) -> None:
    row = answer[(answer["sched_dep_ms"] == 1_357_035_300_000) & (answer["flight"] == 1545)].iloc[0]
    assert (row["origin"], row["weather_time_ms"], row["temp"]) == ("EWR", 1_357_034_400_000, 39.02)


def test_no_weather_comes_from_the_future_and_after_the_last_observation_the_last_one_stays(
    answer: pd.DataFrame,
) -> None:
    age = answer["sched_dep_ms"] - answer["weather_time_ms"]
    assert age.min() == 0
    last = answer.iloc[-1]
    assert last["weather_time_ms"] == 1_388_444_400_000  # 2013-12-30 23:00 UTC


def test_the_lesson_is_that_nearly_all_flights_would_have_the_weather_of_another_hour(answer: pd.DataFrame) -> None:
    lesson = truth.lesson(answer)
    assert 0.97 < lesson.wrong_hour < 0.99
    assert 0.97 < lesson.wrong_values <= lesson.wrong_hour


def test_the_carriers_flights_sum_up_to_all() -> None:
    counts = truth.flights_by_carrier()
    assert (len(counts), sum(counts.values()), counts["UA"]) == (16, 336_776, 58_665)
