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


def test_the_carriers_flights_sum_up_to_all(answer: pd.DataFrame) -> None:
    counts = truth.carrier_counts(answer).set_index("carrier")["count"]
    assert (len(counts), counts.sum(), counts["UA"]) == (16, 336_776, 58_665)


def test_what_has_arrived_so_far_is_the_truth_of_those_flights_alone(answer: pd.DataFrame) -> None:
    some = truth.flights_with_weather(arrived=1_000)
    assert len(some) == 1_000
    assert truth.compare_flights(some, answer) == truth.Agreement(expected=336_776, equal=1_000, surplus=0)


def test_rows_in_any_order_agree_with_the_truth(answer: pd.DataFrame) -> None:
    agreement = truth.compare_flights(answer.sample(frac=1, random_state=1), answer)
    assert agreement.complete
    assert agreement.equal == 336_776


def test_a_missing_a_repeated_a_strange_and_a_wrong_row_are_each_noticed(answer: pd.DataFrame) -> None:
    some = answer.head(100)
    wrong = some.assign(temp=some["temp"].where(some.index != 7, 451.0))
    missing_weather = some.assign(visib=some["visib"].where(some.index != 7))
    assert truth.compare_flights(some.drop(7), some) == truth.Agreement(100, equal=99, surplus=0)
    assert truth.compare_flights(pd.concat([some, some.head(2)]), some) == truth.Agreement(100, equal=100, surplus=2)
    assert truth.compare_flights(some, some.drop(7)) == truth.Agreement(99, equal=99, surplus=1)
    assert truth.compare_flights(wrong, some) == truth.Agreement(100, equal=99, surplus=0)
    assert truth.compare_flights(missing_weather, some) == truth.Agreement(100, equal=99, surplus=0)


def test_of_the_counts_the_last_of_each_carrier_must_be_right_and_none_may_come_twice(answer: pd.DataFrame) -> None:
    last = truth.carrier_counts(answer)
    before = last.assign(count=last["count"] - 1)
    assert truth.compare_counts(pd.concat([before, last]), last).complete
    assert truth.compare_counts(before, last).equal == 0
    assert truth.compare_counts(pd.concat([last, last.head(1)]), last).surplus == 1
