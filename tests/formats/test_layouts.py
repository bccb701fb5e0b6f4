"""Golden files of layouts: this release opens them and goes on, writes the same bytes, and refuses other numbers."""

import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import millpond.processors
from millpond.errors import FormatError
from millpond.processors import Batch, CounterName, Task, TopologyDriver
from millpond.processors.runtime.punctuation import PUNCTUATION
from millpond.processors.runtime.waiting_counts import WAITING
from millpond.processors.verbs.key_timers import KEYED_TIMERS
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Manifest, Storage, TaskState
from millpond.stores.encoding.keys import LAYOUT_ROW, METADATA, TERMS_ROW
from millpond.stores.typed.layouts import Layout
from tests.formats.scenarios import (
    COMPLETION,
    GOLDEN,
    SCENARIOS,
    Arrival,
    Scenario,
    Stores,
    golden_files,
    migrated,
    open_on,
    pipe,
    read,
)

ENGINES = ["memory", "lmdb", "rocksdb"]
FILES = list(golden_files())
LAID_OUT = [scenario for scenario in SCENARIOS if scenario.layout is not None]
ALONE = [scenario for scenario in SCENARIOS if len(scenario.topology.subtopologies) == 1]


def name_of(value: object) -> str:
    return value.name if isinstance(value, Scenario | Path) else str(value)


def layouts() -> set[Layout]:
    """Return all layouts that the processors define."""
    names = [module.name for module in pkgutil.walk_packages(millpond.processors.__path__, "millpond.processors.")]
    return {value for name in names for value in vars(import_module(name)).values() if isinstance(value, Layout)}


def row_of_number(scenario: Scenario) -> bytes:
    return METADATA + scenario.versioned.encode() if scenario.layout is None else LAYOUT_ROW


def numbered(scenario: Scenario, stores: Stores, number: int) -> Stores:
    """Return the same rows with another number in them."""
    row = row_of_number(scenario)
    value = stores[scenario.store][row]
    changed = bytes([number]) + value[1:] if scenario.layout is None else number.to_bytes(4) + value[4:]
    return {**stores, scenario.store: {**stores[scenario.store], row: changed}}


def without(scenario: Scenario, stores: Stores) -> Stores:
    """Return the same rows without any number, as far as they can be without."""
    rows = dict(stores[scenario.store])
    value = rows.pop(row_of_number(scenario))
    if scenario.layout is None:
        rows[row_of_number(scenario)] = value[1:]
    return {**stores, scenario.store: rows}


def without_counts(stores: Stores) -> Stores:
    """Return the same rows without the counts of what waits."""
    return {
        name: {row: value for row, value in rows.items() if not row.startswith(METADATA + WAITING.encode())}
        for name, rows in stores.items()
    }


def without_terms(stores: Stores) -> Stores:
    """Return the same rows without the parameters on which they depend, which golden files do not have yet."""
    return {name: {row: value for row, value in rows.items() if row != TERMS_ROW} for name, rows in stores.items()}


def without_clock_point(scenario: Scenario, stores: Stores) -> Stores:
    """Return the rows without the next point of a wall-clock schedule, which keyed processors do not have any more."""
    if scenario.layout != KEYED_TIMERS:
        return stores
    schedules = METADATA + PUNCTUATION.encode()
    return {
        name: {row: value for row, value in rows.items() if not row.startswith(schedules)}
        for name, rows in stores.items()
    }


def levels(driver: TopologyDriver) -> dict[str, int]:
    """Return how much waits where."""
    return {name: amount for name, amount in driver.counters.items() if name.endswith(f":{CounterName.WAITING}")}


def test_the_numbers_never_move() -> None:
    assert {layout.name: layout.version for layout in layouts()} == {
        "counted-values": 1,
        "foreign-key-left-rows": 1,
        "foreign-key-subscriptions": 1,
        "keyed-timers": 1,
        "suppress-buffer": 1,
        "time-ordered-buffer": 1,
        "unpaired-records": 1,
        "windowed-aggregation": 1,
    }


def test_every_layout_has_a_name_of_its_own_and_a_golden_file_of_every_version() -> None:
    assert {scenario.layout for scenario in LAID_OUT} == layouts()
    expected = {
        f"{scenario.name}-v{version}.json" for scenario in SCENARIOS for version in range(1, scenario.version + 1)
    }
    assert {path.name for path in GOLDEN.glob("*-v*.json")} == expected
    assert all(scenario.layout is None or scenario.layout.name == scenario.name for scenario in SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
def test_the_same_bytes_are_written_as_ever(scenario: Scenario, tmp_path: Path) -> None:
    driver, filled = open_on(scenario, {}, "memory", tmp_path)
    with driver:
        pipe(driver, scenario.before)
        golden = without_clock_point(scenario, read(scenario.file))
        written = without_terms(filled.rows() if scenario.counted else without_counts(filled.rows()))
        assert written == migrated(scenario, golden)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
def test_what_waits_in_state_without_counts_is_counted_once(scenario: Scenario, tmp_path: Path) -> None:
    filling, filled = open_on(scenario, {}, "memory", tmp_path / "filled")
    with filling:
        pipe(filling, scenario.before)
        rows, waiting = filled.rows(), levels(filling)
    opened, counted = open_on(scenario, without_counts(rows), "memory", tmp_path / "opened")
    with opened:
        assert levels(opened) == waiting
        opened.advance_wall_clock(0)
        assert counted.rows() == rows


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("scenario", "path"), FILES, ids=name_of)
def test_a_golden_file_is_opened_and_gone_on_from(scenario: Scenario, path: Path, engine: str, tmp_path: Path) -> None:
    driver, _ = open_on(scenario, migrated(scenario, read(path)), engine, tmp_path)
    with driver:
        assert pipe(driver, scenario.after) == scenario.results
        for name in scenario.topology.stores:
            driver.store(name).check()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
def test_a_number_raised_by_one_is_refused_by_number(scenario: Scenario, engine: str, tmp_path: Path) -> None:
    stores = numbered(scenario, read(scenario.file), scenario.version + 1)
    store = scenario.store.removesuffix("-v2")
    known, unknown = scenario.version, scenario.version + 1
    expected = rf"'{store}' .* version {unknown}, but this release reads .*version {known}; run .* delete nothing"
    with pytest.raises(FormatError, match=expected):
        open_on(scenario, stores, engine, tmp_path)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
def test_rows_without_a_number_are_refused_as_version_0(scenario: Scenario, engine: str, tmp_path: Path) -> None:
    stores = without(scenario, read(scenario.file))
    with pytest.raises(FormatError, match=rf"version 0\)?, but this release reads .*version {scenario.version}"):
        open_on(scenario, stores, engine, tmp_path)


class DurableTask:
    """The only task of a scenario, on durable state."""

    def __init__(self, scenario: Scenario, directory: Path, local: str) -> None:
        topology = scenario.topology
        self._part = topology.subtopologies[0]
        self.state = TaskState(
            list(self._part.stores.values()),
            supplier("memory"),
            application_id="app",
            task_id="0_0",
            local_dir=directory / local,
            storage=Storage.from_uri(directory / "state"),
            fingerprint=topology.fingerprint,
        )

    def run(self, manifest: Manifest | None, arrivals: list[Arrival]) -> tuple[Manifest, list[tuple[Any, Any, int]]]:
        """Process each record as a micro-batch: the last manifest, and what came out on ``out``."""
        results: list[tuple[Any, Any, int]] = []
        for topic, *record in arrivals:
            task = Task(self._part, self.state.open(manifest))
            if (topic, *record) == COMPLETION:
                task.complete()
            else:
                task.process(topic, Batch(*([column] for column in record)))
            task.flush()
            for batch in task.take().get("out", ()):
                results += zip(batch.keys, batch.values, batch.timestamps, strict=True)
            manifest = self.state.commit()
        assert manifest is not None
        return manifest, results


@pytest.mark.parametrize("scenario", ALONE, ids=name_of)
def test_durable_state_of_a_layout_is_gone_on_from_elsewhere(scenario: Scenario, tmp_path: Path) -> None:
    here, elsewhere = (DurableTask(scenario, tmp_path, local) for local in ("here", "elsewhere"))
    with here.state, elsewhere.state:
        manifest, _ = here.run(None, list(scenario.before))
        assert elsewhere.run(manifest, list(scenario.after))[1] == scenario.results


@pytest.mark.parametrize("scenario", ALONE, ids=name_of)
def test_durable_state_with_a_number_raised_by_one_is_refused(scenario: Scenario, tmp_path: Path) -> None:
    here, elsewhere = (DurableTask(scenario, tmp_path, local) for local in ("here", "elsewhere"))
    with here.state, elsewhere.state:
        manifest, _ = here.run(None, list(scenario.before))
        stores: Any = here.state.open(manifest)
        raised = numbered(scenario, read(scenario.file), scenario.version + 1)[scenario.store]
        # There is no other way to write what only a later release may.
        stores[scenario.store.removesuffix("-v2")]._write(row_of_number(scenario), raised[row_of_number(scenario)])
        manifest = here.state.commit()
        with pytest.raises(FormatError, match=f"version {scenario.version + 1}, but this release reads"):
            elsewhere.run(manifest, list(scenario.after))
