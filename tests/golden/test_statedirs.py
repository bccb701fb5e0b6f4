"""The family ``statedirs``: real state directories of Kafka Streams, whose content is known to the last row."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from millpond.adapters.kafka_streams import Import, KafkaStore, ParquetTarget, Report, StoreTarget, open_store
from millpond.adapters.kafka_streams.conversion import Conversion
from millpond.adapters.kafka_streams.importing import expired, observed_stream_time
from millpond.adapters.kafka_streams.targets import Content, fill
from millpond.stores import INT64, STRING, Backend, Serde, StoreKind, StoreSpec, Transaction
from millpond.stores.backend.registry import supplier
from millpond.stores.specs.migration import open_directory
from tests.golden.loader import Case
from tests.kafka_streams.directories import content_of, unpacked

UNTOLD = {
    "kv-plain-old-format": StoreKind.KEY_VALUE,
    "session": StoreKind.SESSION,
    "versioned": StoreKind.VERSIONED,
    "window-plain": StoreKind.WINDOW,
}
"""The kinds of the directories that do not tell it themselves."""

TIMED = {StoreKind.VERSIONED, StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION}
RETENTION = {
    "session": 305_000,
    "versioned": 20_000,
    "window-plain": 300_000,
    "window-timestamped": 300_000,
}
"""Those that they were written with; of versions twice as long, because they are recorded until their segment goes."""


def concerns(case: Case) -> bool:
    return case.family == "statedirs"


@pytest.fixture
def app(case: Case, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The directory of the case's application."""
    return unpacked(case, tmp_path / "kafka", request.config.getoption("golden_dir", None))


def options(case: Case) -> dict[str, Any]:
    """Return the options that the directory does not tell."""
    return {
        "kind": UNTOLD.get(case.name),
        "key_serde": STRING,
        "value_serde": serde_of(case),
        "retention": RETENTION.get(case.name),
        "window_size": 10_000 if case.name.startswith("window") else None,
    }


def serde_of(case: Case) -> Serde[Any]:
    return INT64 if case.name.startswith(("window", "session")) else STRING


def content(case: Case, source: KafkaStore) -> Content:
    given = options(case)
    conversion = Conversion(source.name, given["key_serde"], given["value_serde"])
    return Content(source.name, source.kind, conversion, given["retention"], given["window_size"])


def expected(case: Case) -> list[tuple[Any, ...]]:
    """Return the recorded content, in the order of its keys and times."""
    recorded = case.content["content"]
    if isinstance(recorded, dict):
        recorded = [[key, *version] for key, versions in recorded.items() for version in versions]
    return sorted(map(tuple, recorded), key=lambda row: (row[0].encode(), row[1:] if len(row) > 3 else ()))


def shown(kind: StoreKind, spec: StoreSpec, transaction: Transaction) -> list[tuple[Any, ...]]:
    """Return the rows of a store of Millpond, in the form of the recorded content."""
    store: Any = spec.open_read_only(transaction)
    if kind is StoreKind.VERSIONED:
        rows = [(key, found.value, found.timestamp, found.valid_to) for key, found in store.scan()]
        return sorted(rows, key=lambda row: (row[0].encode(), row[1:]))
    entries = store.fetch_keys() if kind.in_segments else store.scan()
    rows = []
    for key, found in entries:
        span = (key.key, key.start, key.end) if kind.in_segments else (key,)
        stamp = (found.value, found.timestamp) if kind.stamped else (found, -1)
        rows.append((*span, *(stamp[:1] if kind is StoreKind.SESSION else stamp)))
    return sorted(rows, key=lambda row: (row[0].encode(), row[1:] if len(row) > 3 else ()))


def test_a_store_on_each_backend_has_what_kafka_streams_returned(case: Case, app: Path, backend: Backend) -> None:
    with open_store(app, case.content["store"], UNTOLD.get(case.name)) as source:
        brought = content(case, source)
        stream_time = observed_stream_time(source.kind, source.entries()) if source.kind in TIMED else None
        horizon = (stream_time or 0) - (brought.retention or 0)
        kept = (one for one in source.entries() if stream_time is None or not expired(source.kind, one, horizon))
        fill(backend, brought, kept)
    assert shown(source.kind, brought.spec(), Transaction(backend)) == expected(case)
    # What has moved the recorded one on may have left no row, so nothing expires here that has not expired there.
    assert (stream_time or 0) <= case.content.get("observed_stream_time", stream_time or 0)


@pytest.mark.parametrize("engine", ["lmdb", "rocksdb://?compression=none"])
def test_a_directory_has_it_when_it_is_opened_again(case: Case, app: Path, engine: str, tmp_path: Path) -> None:
    target = StoreTarget(tmp_path / "stores", engine)
    report = Import(app, case.content["store"], target, **options(case)).run()
    with open_store(app, case.content["store"], UNTOLD.get(case.name)) as source:
        spec = content(case, source).spec()
    with open_directory(supplier(engine), Path(report.target), spec) as backend:
        assert shown(source.kind, spec, Transaction(backend)) == expected(case)
        spec.open_read_only(Transaction(backend)).check()
    assert [path.name for path in target.directory.iterdir()] == [spec.directory_name]


def test_a_parquet_file_has_it_row_by_row(case: Case, app: Path, tmp_path: Path) -> None:
    report = Import(app, case.content["store"], ParquetTarget(tmp_path / "rows.parquet"), **options(case)).run()
    table = pq.read_table(tmp_path / "rows.parquet")
    windows = ["window_start", "window_end"] if "window_start" in table.schema.names else []
    assert table.schema.names == ["key", *windows, "value", "timestamp"]
    rows = [row for row in table.to_pylist() if row["value"] is not None]
    assert sorted((row["key"].encode(), str(row["value"])) for row in rows) == sorted(
        (row[0].encode(), str(value_of(case, row))) for row in expected(case)
    )
    assert {name: {millis(row[name]) for row in rows} for name in ("timestamp", *windows)} == times_of(case, windows)
    accounts(report, case)
    assert report.written == table.num_rows
    assert report.written - report.tombstones == len(expected(case))


def value_of(case: Case, row: tuple[Any, ...]) -> Any:
    return row[1] if len(row) == 3 or case.name == "versioned" else row[3]


def times_of(case: Case, windows: list[str]) -> dict[str, set[int | None]]:
    rows, plain = expected(case), case.name in {"kv-plain-old-format", "window-plain", "session"}
    times: dict[str, set[int | None]] = {"timestamp": {None} if plain else {row[2] for row in rows}}
    if windows:
        times |= {"window_start": {row[1] for row in rows}, "window_end": {row[2] for row in rows}}
        times["timestamp"] = {None} if plain else {row[4] for row in rows}
    return times


def millis(time: datetime | None) -> int | None:
    return None if time is None else (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def accounts(report: Report, case: Case) -> None:
    """Check that each row is accounted for, and the offsets are those of the ``.checkpoint``."""
    recorded = sum(family["entries"] for families in case.content["rocksdb"].values() for family in families)
    assert report.rows_read == recorded
    assert report.entries_read == report.written + report.expired
    lines = case.content["text_files"]["app/0_0/.checkpoint"].split()
    assert list(report.tasks.values()) == [{f"{lines[2]}-{lines[3]}": int(lines[4])}]


def test_the_source_stays_as_it_is(case: Case, app: Path, tmp_path: Path) -> None:
    before = content_of(app)
    Import(app, case.content["store"], ParquetTarget(tmp_path / "rows.parquet"), **options(case)).run()
    assert content_of(app) == before


def test_the_directory_of_a_task_and_that_of_the_store_have_the_same(case: Case, app: Path, tmp_path: Path) -> None:
    places = [app, app / "0_0", app.parent / case.content["store_dir"]]
    for number, place in enumerate(places):
        Import(place, case.content["store"], ParquetTarget(tmp_path / f"{number}"), **options(case)).run()
    first, *others = (pq.read_table(tmp_path / f"{number}") for number in range(len(places)))
    assert all(other.equals(first) for other in others)
