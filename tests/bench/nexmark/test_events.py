"""The events of Nexmark: their proportions, sizes, hot keys and times, and that each follows from its number."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute
import pyarrow.parquet as pq
import pytest

from millpond.bench.nexmark.answers import in_millis
from millpond.bench.nexmark.events import BEGIN, HOT_CHANNELS, STATES, Site
from millpond.bench.nexmark.files import SOURCES, emitted_rows, events_of, write_events
from millpond.bench.spark.shapes import Scale, columns_of
from millpond.errors import ConfigurationError

pc: Any = _compute

COUNT = 100_000


@pytest.fixture(scope="module")
def events() -> dict[str, pa.Table]:
    return events_of(Site(), 0, COUNT)


def share(values: Any) -> float:
    return float(pc.mean(values.cast(pa.int8())).as_py())


def test_of_fifty_events_one_is_a_person_and_three_are_auctions(events: dict[str, pa.Table]) -> None:
    assert {name: len(rows) / COUNT * 50 for name, rows in events.items()} == {"persons": 1, "auctions": 3, "bids": 46}
    for name in ("persons", "auctions"):
        assert events[name]["id"].to_pylist() == list(range(1000, 1000 + len(events[name])))


def test_an_event_is_the_same_however_many_are_made_at_once(events: dict[str, pa.Table]) -> None:
    cuts = [0, 1, 2, 49, 50, 51, 999, 2_000]
    for name, rows in events.items():
        pieces = [events_of(Site(), first, end - first)[name] for first, end in pairwise(cuts)]
        whole = pa.concat_tables(pieces)
        assert whole == rows.slice(0, len(whole)).combine_chunks()


def test_another_seed_makes_other_events_of_the_same_ids_and_times(events: dict[str, pa.Table]) -> None:
    other = events_of(Site(seed=2), 0, COUNT)
    for name, rows in events.items():
        assert other[name]["dateTime"] == rows["dateTime"]
        assert other[name]["extra"] != rows["extra"]
    assert other["bids"]["bidder"] != events["bids"]["bidder"]


def test_the_average_sizes_are_those_of_the_suite(events: dict[str, pa.Table]) -> None:
    counted = {"persons": (200, 1), "auctions": (500, 6), "bids": (100, 4)}
    for name, rows in events.items():
        average, numbers = counted[name]
        text = [one.name for one in rows.schema if pa.types.is_string(one.type) and one.name not in ("channel", "url")]
        size = sum(pc.mean(pc.binary_length(rows[one])).as_py() for one in text) + 8 * numbers
        assert size == pytest.approx(average, rel=0.02)


def test_half_of_the_bids_are_for_a_hot_auction_and_three_quarters_by_a_hot_bidder(events: dict[str, pa.Table]) -> None:
    bids = events["bids"]
    of_hot = share(pc.equal(remainder(bids["auction"]), 0))
    assert of_hot == pytest.approx(0.5 + 0.5 / 110, abs=0.02)
    by_hot = share(pc.equal(remainder(bids["bidder"]), 1))
    assert by_hot == pytest.approx(0.75 + 0.25 / 100, abs=0.02)
    by_hot_sellers = share(pc.equal(remainder(events["auctions"]["seller"]), 0))
    assert by_hot_sellers == pytest.approx(0.75 + 0.25 / 100, abs=0.02)


def remainder(ids: Any) -> Any:
    return pa.array(ids.to_numpy() % 100)


def test_categories_states_channels_and_prices_are_spread_evenly(events: dict[str, pa.Table]) -> None:
    categories = pc.value_counts(events["auctions"]["category"]).to_pylist()
    assert {one["values"]: one["counts"] / 6_000 for one in categories} == {
        category: pytest.approx(0.2, abs=0.03) for category in range(10, 15)
    }
    states = pc.value_counts(events["persons"]["state"]).to_pylist()
    assert {one["values"]: one["counts"] / 2_000 for one in states} == {
        state: pytest.approx(1 / 6, abs=0.03) for state in STATES
    }
    bids = events["bids"]
    hot = share(pc.is_in(bids["channel"], pa.array(HOT_CHANNELS)))
    assert hot == pytest.approx(0.5, abs=0.01)
    assert len(bids["channel"].unique()) > 9_900
    magnitudes = np.floor(np.log10(bids["price"].to_numpy())).astype(int)
    assert np.bincount(magnitudes, minlength=9)[2:8] / len(bids) == pytest.approx([1 / 6] * 6, abs=0.01)
    assert bids["price"].to_numpy().max() <= 100_000_000


@pytest.mark.parametrize("rate", [10_000, 20, 3])
def test_times_go_by_the_rate(rate: int) -> None:
    times = Site(rate=rate).times(np.arange(100)) - BEGIN
    assert times.tolist() == [number * 1_000 // rate for number in range(100)]


def test_events_out_of_order_are_all_there_and_stay_in_their_group() -> None:
    site = Site(out_of_order=60)
    emitted = site.emitted(0, 600)
    assert sorted(emitted.tolist()) == list(range(600))
    assert emitted.tolist() != list(range(600))
    assert (emitted // 60 == np.arange(600) // 60).all()
    assert site.emitted(130, 40).tolist() == emitted[130:170].tolist()
    assert Site().emitted(5, 3).tolist() == [5, 6, 7]


def test_bids_arrive_in_the_order_in_which_they_are_emitted() -> None:
    bids = in_millis(events_of(Site(rate=20, out_of_order=60), 120, 600)["bids"])
    arrived = bids["arrived"].to_numpy()
    assert (np.diff(arrived) > 0).all()
    assert (np.abs(arrived - bids["dateTime"].to_numpy()) <= 60 * 50).all()
    assert (arrived != bids["dateTime"].to_numpy()).any()


@pytest.mark.parametrize("rate", [20, 10_000])
def test_a_bid_is_as_far_from_its_auction_as_the_site_says_and_no_auction_is_longer(rate: int) -> None:
    site = Site(rate=rate)
    found = {name: in_millis(rows) for name, rows in events_of(site, 0, COUNT).items()}
    auctions, bids = found["auctions"], found["bids"]
    begin = auctions["dateTime"].to_numpy()
    lengths = auctions["expires"].to_numpy() - begin
    assert 0 < lengths.min() <= lengths.max() <= site.longest_auction
    assert lengths.max() > 0.9 * site.longest_auction
    there = bids.filter(pc.less(bids["auction"], 1000 + len(auctions)))
    ages = there["dateTime"].to_numpy() - begin[there["auction"].to_numpy() - 1000]
    assert -site.latest_auction <= ages.min() < 0 < ages.max() <= site.oldest_auction
    assert ages.max() > 0.9 * site.oldest_auction


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"rate": 0}, "rate is 0, but must be"),
        ({"out_of_order": 0}, "out_of_order is 0"),
        ({"out_of_order": 1906}, "no multiple of 953"),
        ({"out_of_order": 81, "rate": 20}, "up to 4 s late, and the suite allows 4; give at most 80"),
    ],
)
def test_a_site_that_there_cannot_be_is_refused(wrong: dict[str, int], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Site(**wrong)


def test_files_of_a_micro_batch_have_its_events_once_and_interleave(tmp_path: Path) -> None:
    site, scale = Site(rate=20, out_of_order=60, seed=3), Scale(1_000, 0, 3)
    write_events(site, tmp_path, SOURCES, scale, 2)
    for source in SOURCES:
        for number in range(2):
            parts = [pq.read_table(path) for path in sorted((tmp_path / source.name).glob(f"{number:06d}-*.parquet"))]
            assert len(parts) == 3
            assert [part.column_names for part in parts] == [columns_of(source.schema)] * 3
            whole = events_of(site, number * 1_000, 1_000)[source.name]
            order: Any = [("dateTime", "ascending"), ("extra", "ascending")]
            assert pa.concat_tables(parts).sort_by(order).to_pylist() == whole.sort_by(order).to_pylist()
            ranges = [(pc.min(part["dateTime"]).as_py(), pc.max(part["dateTime"]).as_py()) for part in parts]
            assert max(earliest for earliest, _ in ranges) < min(latest for _, latest in ranges)


@pytest.mark.parametrize("files", [1, 2, 7])
def test_files_are_read_in_the_order_in_which_events_are_emitted(files: int, tmp_path: Path) -> None:
    site, scale = Site(out_of_order=60), Scale(333, 0, files)
    write_events(site, tmp_path, SOURCES, scale, 3)
    for name, rows in events_of(site, 0, 2 * scale.rows).items():
        columns = rows.column_names[:3]
        assert emitted_rows(tmp_path, scale, name, 2, columns).equals(rows.select(columns))
