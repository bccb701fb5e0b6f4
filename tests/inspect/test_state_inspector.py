"""The view of a query's state: what each micro-batch has committed, and clear words where nothing can be shown."""

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, move, rmtree
from struct import pack
from typing import Any

import pytest

from millpond.adapters.inspect import Selection, StateInspector
from millpond.adapters.inspect.checkpoint import kept_manifest
from millpond.adapters.inspect.row_texts import objects
from millpond.errors import ConfigurationError, CorruptFileError, FormatError, MillpondError, MissingFileError
from millpond.stores import STRING, StoreKind, StoreSpec
from millpond.stores.durability import read_rows
from millpond.stores.encoding.serdes import StringSerde
from millpond.stores.typed.windows.windowed import Windowed
from tests.inspect.checkpoints import SPECS, Query, changelog, lz4, state_key, state_value

KEYS = [f"key {number}" for number in range(6)]
SNAPSHOTS: list[tuple[int, ...]] = [(), (0, 1, 2), (1,)]


class Upper(StringSerde):
    """A serde of a user's own."""

    name = "upper"

    def deserialize(self, data: bytes) -> str:
        return data.decode().upper()


def fill(number: int) -> Callable[[Any, Any], None]:
    """Return a micro-batch that changes every store."""

    def change(stores: Any, mine: Callable[[str], bool]) -> None:
        for place, key in enumerate(filter(mine, KEYS[number:])):
            time = 10 * number + place
            stores["plain"].put(key, number)
            stores["times"].put(key, number, time)
            stores["versions"].put(key, None if number == 2 else number, time)
            stores["windows"].put(key, number, 10 * number)
            stores["stamped-windows"].put(key, number, time, 10 * number)
            stores["sessions"].put(Windowed(key, time, time + 3), number)

    return change


def filled(directory: Path, snapshots: tuple[int, ...] = ()) -> Query:
    query = Query(directory, snapshots=snapshots)
    for number in range(3):
        query.run(fill(number))
    return query


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return filled(tmp_path)


def shown(view: Any, **selection: Any) -> list[dict[str, Any]]:
    return [row for batch in view.rows(Selection(**selection)) for row in batch.to_pylist()]


def millis(time: Any) -> Any:
    return None if time is None else round(time.timestamp() * 1000)


@pytest.mark.parametrize("snapshots", SNAPSHOTS)
def test_every_store_is_shown_as_it_was_after_each_micro_batch(tmp_path: Path, snapshots: tuple[int, ...]) -> None:
    query = Query(tmp_path, snapshots=snapshots)
    expected: list[dict[str, list[Any]]] = []
    for number in range(3):
        query.run(fill(number))
        expected.append(
            {
                name: sorted(row for one in query.manifests for row in read_rows(query.storage, one, spec))
                for name, spec in SPECS.items()
            }
        )
    inspector = query.inspector(specs=SPECS)
    assert inspector.batches == [0, 1, 2]
    for batch in range(3):
        for view in inspector.stores(batch):
            found = []
            for row in shown(view):
                key: Any = row["key"]
                if "window_start" in row:
                    key = Windowed(key, millis(row["window_start"]), millis(row["window_end"]))
                found.append((key, row["value"], millis(row.get("timestamp", row.get("valid_from")))))
            assert sorted(found) == expected[batch][view.name] != []
            assert {part.task_id for part in view.parts} == {"0_0", "0_1"}


def test_who_names_a_sink_or_verb_for_a_store_is_told_its_stores(query: Query) -> None:
    inspector = query.inspector()
    sink = inspector.store("plain").sink
    with pytest.raises(
        ConfigurationError, match=rf"'{sink}' is what .*'plain'.* belongs to: .* and sink='{sink}' \(--sink\) \["
    ):
        inspector.store(sink)
    assert inspector.store("plain", sink=sink).name == "plain"


def test_without_specs_all_is_shown_but_how_long_a_window_is(query: Query) -> None:
    alone, with_specs = query.inspector(), query.inspector(specs=SPECS)
    for name in SPECS:
        found = shown(alone.store(name))
        if "windows" in name:
            assert {row["window_end"] for row in found} == {None}
        without_ends = [
            {**row, "window_end": None} if "windows" in name else row for row in shown(with_specs.store(name))
        ]
        assert found == without_ends


def test_a_key_is_found_in_its_task_with_all_that_it_has(query: Query) -> None:
    inspector = query.inspector()
    for name in SPECS:
        view = inspector.store(name)
        for key in KEYS:
            found = view.get(key)
            mine = [row for row in shown(view) if row["key"] == key and row.get("valid_to") is None]
            assert ([] if found is None else found.to_pylist()) == mine
            assert name == "versions" or mine
        assert view.get("nobody") is None
    windows = inspector.store("windows").get("key 1")
    assert windows is not None
    assert windows["value"].to_pylist() == [0, 1]


def test_a_key_that_a_processor_keeps_in_another_task_is_found_too(tmp_path: Path) -> None:
    query = Query(tmp_path, [SPECS["plain"]])
    query.run(lambda stores, mine: None if mine("here") else stores["plain"].put("here", 7))
    found = query.inspector().store("plain").get("here")
    assert found is not None
    assert found["value"].to_pylist() == [7]


def test_versions_are_shown_as_of_a_time_and_as_a_history(query: Query) -> None:
    view = query.inspector().store("versions")
    history = [
        (row["value"], millis(row["valid_from"]), millis(row["valid_to"])) for row in view.history("key 3").to_pylist()
    ]
    assert [value for value, _, _ in history] == [0, 1]
    assert all(end is not None for _, _, end in history), "the last one was deleted"
    for value, start, stop in history:
        for time in (start, stop - 1):
            found = view.get("key 3", time)
            assert found is not None
            assert found["value"].to_pylist() == [value]
            assert [row["value"] for row in shown(view, as_of=time) if row["key"] == "key 3"] == [value]
    assert view.get("key 3", history[0][1] - 1) is None
    assert view.history("nobody").num_rows == 0
    for ask in (
        lambda: query.inspector().store("plain").history("key 3"),
        lambda: shown(query.inspector().store("times"), as_of=1),
    ):
        with pytest.raises(ConfigurationError, match="keeps no versions"):
            ask()


def test_ranges_of_keys_are_half_open(query: Query) -> None:
    for name in SPECS:
        keys = {row["key"] for row in shown(query.inspector().store(name), key_from="key 1", key_to="key 4")}
        assert keys == {"key 1", "key 2", "key 3"}


def test_what_was_not_committed_is_not_shown(query: Query) -> None:
    query.run(fill(0))
    (query.checkpoint / "commits" / "3").unlink()
    assert query.inspector().batches == [0, 1, 2]
    assert {row["value"] for row in shown(query.inspector().store("plain"))} == {0, 1, 2}
    with pytest.raises(ConfigurationError, match="has no micro-batch 3, only 0 to 2; look at one of these"):
        query.inspector().stores(3)


def test_views_travel_to_other_processes(query: Query) -> None:
    view = query.inspector().store("versions")
    assert shown(pickle.loads(pickle.dumps(view))) == shown(view)
    part = pickle.loads(pickle.dumps(view.parts[0]))
    assert [row for batch in part.rows() for row in objects(batch)] == [
        row for batch in view.parts[0].rows() for row in objects(batch)
    ]


def test_a_store_that_is_not_there_is_named_with_those_that_are(query: Query) -> None:
    with pytest.raises(ConfigurationError, match=r"no store 'time', only plain, sessions, .*; did you mean 'times'"):
        query.inspector().store("time")
    there = r"application_id='app' \(--application\), sink='out' \(--sink\) \["
    places: list[dict[str, Any]] = [{"sink": "elsewhere"}, {"application_id": "ap"}]
    for place in places:
        with pytest.raises(ConfigurationError, match=rf"no store 'plain' of that sink and application; .*: {there}"):
            query.inspector().store("plain", **place)


def test_a_serde_that_only_its_user_knows_is_shown_as_bytes(tmp_path: Path) -> None:
    spec = StoreSpec("names", StoreKind.KEY_VALUE, STRING, Upper())
    query = Query(tmp_path, [spec])
    query.run(lambda stores, mine: stores["names"].put("a", "tea") if mine("a") else None)
    assert shown(query.inspector().store("names")) == [{"key": "a", "value": b"tea"}]
    assert shown(query.inspector(specs={"names": spec}).store("names")) == [{"key": "a", "value": '"TEA"'}]


def test_a_place_without_a_checkpoint_or_a_commit_is_named(query: Query, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no checkpoint at .*elsewhere; give the query's"):
        StateInspector.at(str(tmp_path / "elsewhere"), str(query.state))
    with pytest.raises(ConfigurationError, match=r"has no record of the state of \['app'\].*own state_dir"):
        StateInspector.at(str(query.checkpoint), str(tmp_path / "elsewhere")).stores()
    move(query.checkpoint / "commits", tmp_path / "away")
    with pytest.raises(ConfigurationError, match="has not committed a micro-batch yet"):
        query.inspector().stores()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def _countless(path: Path) -> None:
    path.write_text(re.sub(r'"numPartitions": \d+', f'"numPartitions": {10**30}', path.read_text()))


def _without_lines(path: Path) -> None:
    path.write_text("v1\n")


def _without_ids(path: Path) -> None:
    path.write_text('v1\n{"stateUniqueIds":{"7":[]}}')


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _other_codec(path: Path) -> None:
    path.write_bytes(b"LZF" + path.read_bytes())


DAMAGE: list[tuple[tuple[int, ...], str, Callable[[Path], None], type[MillpondError], str]] = [
    (
        (),
        "state/0/0/2.changelog",
        Path.unlink,
        MissingFileError,
        "2.changelog of Spark's state does not exist; put",
    ),
    ((), "state/0/0/2.changelog", _cut, CorruptFileError, "2.changelog is damaged: .*; put an undamaged copy back"),
    ((), "state/0/0/2.changelog", _flip, CorruptFileError, "2.changelog is damaged: a block fails its checksum"),
    ((), "state/0/0/2.changelog", _other_codec, FormatError, "in a form that is not known here .*let Spark read it"),
    ((2,), "state/0/0/3.zip", _cut, CorruptFileError, "3.zip is damaged: it is no whole zip file"),
    ((2,), "state/0/0/SSTs/*", Path.unlink, MissingFileError, "SSTs/.* does not exist"),
    ((2,), "state/0/0/SSTs/*", _cut, CorruptFileError, "3.zip is damaged: its table .* bytes instead of"),
    ((2,), "state/0/0/SSTs/*", _flip, CorruptFileError, "3.zip is damaged: RocksDB cannot read it"),
    ((), "commits/2", _without_lines, CorruptFileError, "commits/2 is damaged"),
    ((), "commits/2", _without_ids, CorruptFileError, "commits/2 is damaged .*; put an"),
    ((), "state/0/_metadata/v2/0", _cut, CorruptFileError, "_metadata/v2/0 is damaged"),
    ((), "state/0/_metadata/v2/0", _countless, CorruptFileError, "_metadata/v2/0 is damaged.*is no count from 0 to"),
]


@pytest.mark.parametrize(("snapshots", "name", "damage", "error", "message"), DAMAGE)
def test_damaged_and_missing_files_of_spark_are_named_and_put_back_or_another_micro_batch_is_looked_at(
    tmp_path: Path,
    snapshots: tuple[int, ...],
    name: str,
    damage: Callable[[Path], None],
    error: type[MillpondError],
    message: str,
) -> None:
    query = filled(tmp_path, snapshots)
    first, last = rows(query, 0), rows(query, 2)
    (path,) = query.checkpoint.glob(name)
    whole = path.read_bytes()
    damage(path)
    with pytest.raises(error, match=message) as refused:
        query.inspector().stores()
    if "look at another micro-batch" in str(refused.value):
        assert rows(query, 0) == first
    if error is not FormatError:
        assert re.search(r"; put (it|an undamaged copy) back", str(refused.value))
        path.write_bytes(whole)
        assert rows(query, 2) == last


def rows(query: Query, batch: int) -> list[Any]:
    return [shown(view) for view in query.inspector().stores(batch)]


def test_state_of_a_newer_release_is_read_by_that(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rows(query, 2)
    for number, manifest in enumerate(query.manifests):
        value = bytearray(state_value(manifest))
        value[9:13] = (3).to_bytes(4, "little")
        path = query.checkpoint / "state" / "0" / str(number) / "3.changelog"
        path.write_bytes(lz4(changelog({state_key(number): bytes(value)})))
    with pytest.raises(
        FormatError, match=r"a value of version 3, .*; run the release that wrote it, or a newer one \["
    ):
        rows(query, 2)
    monkeypatch.setattr(kept_manifest, "OF_ONE", 3)  # what the newer release knows
    assert rows(query, 2) == before


def test_state_with_more_than_manifests_is_looked_at_once_there_is_a_snapshot_of_it(tmp_path: Path) -> None:
    query = filled(tmp_path, (3,))
    other = b"\x07" + state_key(0)[1:]
    path = query.checkpoint / "state" / "0" / "0" / "3.changelog"
    path.write_bytes(lz4(changelog({state_key(0): state_value(query.manifests[0]), other: b"of another variable"})))
    with pytest.raises(
        FormatError, match=r"more than its operator keeps, .*; wait for Spark's next snapshot, or let Spark"
    ):
        rows(query, 2)
    query.run(fill(3))
    assert rows(query, 3)


@pytest.mark.parametrize(("end", "message"), [(-1, "this is not a manifest: "), (None, "a manifest of version 2 is d")])
def test_of_a_checkpoint_with_damaged_manifests_an_undamaged_copy_is_put_back(
    tmp_path: Path, end: int | None, message: str
) -> None:
    query = filled(tmp_path)
    right = [shown(view) for view in query.inspector(specs=SPECS).stores()]
    copytree(query.checkpoint, tmp_path / "copy")
    for number, manifest in enumerate(query.manifests):
        text = manifest.to_json().replace('"app"', '"other"')[:end].encode()
        value = pack("<bQqII", 0, 0, 1, len(text), 24) + text + bytes(-len(text) % 8)
        (path,) = query.checkpoint.glob(f"state/0/{number}/3.changelog")
        path.write_bytes(lz4(changelog({state_key(number): value})))
    with pytest.raises(FormatError, match=f"{message}.*; put an undamaged copy of the checkpoint back"):
        query.inspector(specs=SPECS).stores()
    rmtree(query.checkpoint)
    move(tmp_path / "copy", query.checkpoint)
    assert [shown(view) for view in query.inspector(specs=SPECS).stores()] == right


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("providerClass", "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"),
        ("encodingFormat", "avro"),
    ],
)
def test_state_that_is_kept_in_another_way_is_refused(query: Query, setting: str, value: str) -> None:
    query.commit(2, {f"spark.sql.streaming.stateStore.{setting}": value})
    with pytest.raises(FormatError, match=f"{setting}={value}, and only .* can be read without Spark; let Spark read"):
        query.inspector().stores()


def test_damaged_durable_files_are_named(query: Query) -> None:
    newest = max(query.state.rglob("*.parquet"))
    _flip(newest)
    views = query.inspector().stores()
    with pytest.raises(CorruptFileError, match=newest.name):
        list(map(shown, views))


def test_checkpoints_with_unique_ids_lead_by_their_lineage_and_not_by_numbers(query: Query) -> None:
    ids = ["a1-x", "b2-x", "c3-x"]
    before = [query.inspector().checkpoint.manifests(batch) for batch in range(3)]
    for number, manifest in enumerate(query.manifests):
        directory = query.checkpoint / "state" / "0" / str(number)
        rows = [manifests[number] for manifests in before]
        for version, id_ in enumerate(ids, 1):
            lineage = [{"version": at, "checkpointUniqueId": one} for at, one in enumerate(ids[: version - 1], 1)]
            content = changelog({state_key(number): state_value(rows[version - 1])}, lineage)
            (directory / f"{version}_{id_}.changelog").write_bytes(lz4(content))
            (directory / f"{version}_zombie.changelog").write_bytes(b"what nobody has committed")
            (directory / f"{version}.changelog").unlink()
        assert manifest == rows[2]
    for batch, id_ in enumerate(ids):
        query.commit(batch, ids={"0": [[id_], [id_]]})
    assert [view.name for view in query.inspector().stores()] == sorted(SPECS)
    assert query.inspector().checkpoint.manifests(2) == query.manifests
    for part in ("0", "1"):
        (query.checkpoint / "state" / "0" / part / "1_a1-x.changelog").unlink()
    with pytest.raises(MissingFileError, match=r"1_a1-x.changelog of Spark's state does not exist"):
        query.inspector().stores()


def test_operators_of_others_are_passed_over(query: Query) -> None:
    theirs = {"operatorInfo": {"operatorName": "dedupe"}, "stateStoreInfo": [], "operatorPropertiesJson": ""}
    place = query.checkpoint / "state" / "1" / "_metadata" / "v2"
    place.mkdir(parents=True)
    (place / "0").write_text(f"v2\n{json.dumps(theirs)}")
    assert len(query.inspector().checkpoint.manifests(2)) == 2


def test_deleted_values_and_other_forms_of_values_are_told_apart(query: Query) -> None:
    path = query.checkpoint / "state" / "0" / "0" / "3.changelog"
    path.write_bytes(lz4(changelog({state_key(0): None})))
    assert [one.task_id for one in query.inspector().checkpoint.manifests(2)] == ["0_1"]
    path.write_bytes(lz4(changelog({state_key(0): b"avro or so"})))
    with pytest.raises(FormatError, match="holds no manifest in Spark's form of rows; let Spark read it"):
        query.inspector().stores()
