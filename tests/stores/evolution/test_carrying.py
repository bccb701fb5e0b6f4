"""State that is carried to another number of partitions is what it would have been there all along."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.stores.durability import Storage
from tests.stores.evolution.queries import SPECS, Change, carry, manifests_of, opened, restored, rows_of, run, shape_of

keys = st.binary(max_size=3) | st.sampled_from([b"\x00", b"\x00\xff", b"\xff\x00\x00", b"a\x00\x01", bytes(8)])
changes = st.tuples(
    st.sampled_from([spec.name for spec in SPECS]),
    keys,
    st.none() | st.binary(max_size=3),
    st.integers(-5000, 5000),
    st.integers(0, 30),
)
batches = st.lists(st.lists(changes, max_size=40), min_size=1, max_size=3)
partitions = st.integers(1, 6)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.from_uri(f"file://{tmp_path}?sync=false")


@settings(max_examples=25, deadline=None)
@given(batches, partitions, partitions)
def test_stores_of_all_kinds_hold_what_they_would_hold_there_all_along(
    batches: list[list[Change]], before: int, after: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        storage = Storage.from_uri(f"file://{directory}?sync=false")
        old, expected = run(storage, SPECS, before, batches), run(storage, SPECS, after, batches)
        carried = carry(storage, shape_of(SPECS, before), shape_of(SPECS, after), manifests_of(old))
        for partition, task in enumerate(expected):
            for spec in SPECS:
                manifest = carried.get((0, partition))
                store = opened(storage, manifest, spec)
                if spec.retain_duplicates:
                    assert list(store.fetch_all()) == list(task.stores[spec.name].fetch_all())
                else:
                    assert rows_of(restored(storage, manifest, spec)) == task.rows(spec.name), spec.name
