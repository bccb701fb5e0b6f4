"""Edited state is what the next micro-batch begins with, on every kind of store, and what was before comes back."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.adapters.edit import StateEditor, erase
from millpond.adapters.inspect import StateInspector
from millpond.errors import ConfigurationError, MillpondError, StateConflictError
from millpond.stores import STRING, StoreKind, StoreSpec
from millpond.stores.durability import Manifest
from millpond.stores.evolution.history import History
from millpond.stores.typed.windows.windowed import Windowed
from tests.inspect.checkpoints import PARTITIONS, SPECS, Query
from tests.inspect.test_state_inspector import KEYS, fill, filled, shown

KEY = KEYS[3]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(millis: int) -> datetime:
    return EPOCH + timedelta(milliseconds=millis)


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return filled(tmp_path)


def editor(query: Query, **options: Any) -> StateEditor:
    options = {"by": "ann", "why": "a test", "specs": SPECS} | options
    return StateEditor.at(str(query.checkpoint), str(query.state), **options)


def content(query: Query) -> dict[str, list[dict[str, Any]]]:
    inspector = query.inspector(specs=SPECS)
    return {name: sorted(shown(inspector.store(name)), key=repr) for name in SPECS}


def entries_of(query: Query, key: str) -> Iterator[tuple[str, Any]]:
    """Yield what the stores themselves have for a key, in the micro-batch that follows."""
    found: list[tuple[str, Any]] = []

    def read(stores: Any, mine: Callable[[str], bool]) -> None:
        if mine(key):
            found.extend((name, stores[name].get(key)) for name in ("plain", "times", "versions"))
            found.append(("windows", list(stores["windows"].fetch_keys(key, key + "\0"))))
            found.append(("stamped-windows", list(stores["stamped-windows"].fetch_keys(key, key + "\0"))))
            found.append(("sessions", list(stores["sessions"].fetch(key))))

    query.run(read)
    return iter(found)


NEW: dict[str, dict[str, Any]] = {
    "plain": {"value": 70},
    "times": {"value": 70, "timestamp": at(500)},
    "versions": {"value": 70, "valid_from": at(500), "valid_to": None},
    "windows": {"value": 70, "window_start": at(20), "window_end": None},
    "stamped-windows": {"value": 70, "window_start": at(20), "timestamp": at(21)},
    "sessions": {"value": 70, "window_start": at(500), "window_end": at(507)},
}


def test_what_is_put_is_read_by_the_stores_of_the_next_micro_batch(query: Query) -> None:
    with editor(query) as edits:
        for store, row in NEW.items():
            assert edits.put(store, [{"key": KEY, **row}], ahead=True) == 1
        (report,) = edits.commit()
    assert report.note.rows == {f"put {store}": 1 for store in NEW}
    assert (report.generation, report.batch, report.note.by) == (1, 2, "ann")
    found = dict(entries_of(query, KEY))
    assert found["plain"] == 70
    assert found["times"] == (70, 500)
    assert (found["versions"].value, found["versions"].timestamp) == (70, 500)
    assert found["windows"][-1] == (Windowed(KEY, 20, 30), 70)
    assert found["stamped-windows"][-1] == (Windowed(KEY, 20, 30), (70, 21))
    assert found["sessions"][-1] == (Windowed(KEY, 500, 507), 70)


@pytest.mark.parametrize("store", SPECS)
def test_what_was_read_can_be_put_into_an_empty_state(query: Query, store: str, tmp_path: Path) -> None:
    other = Query(tmp_path / "other")
    other.run(lambda stores, mine: stores["plain"].put("none", 0))
    rows = [batch for view in [query.inspector(specs=SPECS).store(store)] for batch in view.rows()]
    with editor(other) as edits:
        edits.put(store, pa.Table.from_batches(rows), ahead=True)
        edits.commit()
    assert [row for row in content(other)[store] if row["key"] != "none"] == content(query)[store]


def test_a_deleted_key_is_gone_with_its_history_and_other_keys_stay(query: Query) -> None:
    before = content(query)
    with editor(query) as edits:
        assert {store: edits.delete(store, KEY) for store in SPECS} == {
            store: 1 if store in ("plain", "times", "versions") else 3 for store in SPECS
        }
        edits.commit()
    left = {store: [row for row in rows if row["key"] != KEY] for store, rows in before.items()}
    assert content(query) == left
    assert query.inspector().store("versions").history(KEY).num_rows == 0
    assert all(not found for _, found in entries_of(query, KEY))
    assert content(query) == left


def test_one_window_is_deleted(query: Query) -> None:
    with editor(query) as edits:
        assert edits.delete("windows", KEY, window_start=10) == 1
        assert edits.delete("windows", KEY, window_start=11) == 0
        edits.commit()
    starts = {row["window_start"] for row in content(query)["windows"] if row["key"] == KEY}
    assert starts == {at(0), at(20)}


def test_edits_of_one_key_follow_each_other_and_only_tasks_that_are_edited_change(query: Query) -> None:
    with editor(query) as edits:
        edits.put("times", [{"key": KEY, "value": 8}, {"key": KEY, "value": 9}])
        versions = [{"key": KEY, "value": value, "valid_from": at(600 - value)} for value in (1, 2)]
        edits.put("versions", versions, ahead=True)
        assert edits.delete("plain", KEY) == 1
        assert edits.delete("plain", KEY) == 0
        edits.commit()
    inspector = query.inspector()
    assert [row["value"] for row in shown(inspector.store("times")) if row["key"] == KEY] == [9]
    assert inspector.store("versions").history(KEY)["value"].to_pylist()[-2:] == [2, 1]
    record = History.of(query.storage, "app", "out").newest
    assert record is not None
    changed = {task for task, base in record.bases.items() if base.commit not in record.origins}
    assert len(changed) == 1 < PARTITIONS == len(record.bases)


def test_an_edit_is_undone_until_a_micro_batch_has_followed_it(query: Query) -> None:
    before = content(query)
    with editor(query) as edits:
        edits.delete("plain", KEY)
        edits.put("times", [{"key": KEY, "value": 9}])
        edits.commit()
    assert content(query) != before
    (undone,) = editor(query, by="bob").undo()
    assert undone.note.rows == {"undo delete plain": 1, "undo put times": 1}
    assert content(query) == before
    with pytest.raises(StateConflictError, match="is already undone"):
        editor(query).undo()
    query.run(fill(1))
    assert {row["value"] for row in content(query)["plain"]} == {0, 1}

    with editor(query) as edits:
        edits.delete("plain", KEY)
        edits.commit()
    query.run(fill(2))
    with pytest.raises(StateConflictError, match="edited after micro-batch 3, and the query has gone on since, up to"):
        editor(query).undo()
    assert [record.edit and record.edit.by for record in History.of(query.storage, "app", "out").records] == [
        None, "ann", "bob", "ann",
    ]  # fmt: skip
    with editor(query) as edits:
        edits.put("plain", [{"key": KEY, "value": 9}])
        edits.commit()
    query.run(lambda stores, mine: None)
    assert [row["value"] for row in content(query)["plain"] if row["key"] == KEY] == [9]


def test_what_was_not_edited_is_not_undone_and_nothing_is_written_where_nothing_changes(query: Query) -> None:
    with pytest.raises(StateConflictError, match="was not edited last, so there is no edit to be undone"):
        editor(query).undo()
    with editor(query) as edits:
        assert edits.delete("plain", "nobody") == 0
        assert edits.commit() == []
    with editor(query) as edits:
        edits.put("plain", [{"key": KEY, "value": 3}])
    assert History.of(query.storage, "app", "out").next_generation == 1


def test_an_earlier_micro_batch_shows_what_was_before_the_edit(query: Query) -> None:
    before = {batch: shown(query.inspector().store("plain", batch=batch)) for batch in (0, 1)}
    with editor(query) as edits:
        edits.delete("plain", KEY)
        edits.commit()
    assert before == {batch: shown(query.inspector().store("plain", batch=batch)) for batch in (0, 1)}


def test_a_query_that_has_gone_on_meanwhile_is_not_edited(query: Query) -> None:
    with editor(query) as edits:
        edits.delete("plain", KEY)
        query.run(fill(1))
        with pytest.raises(StateConflictError, match="another job committed micro-batch 3"):
            edits.commit()
    assert History.of(query.storage, "app", "out").next_generation == 1


@pytest.mark.parametrize(
    ("store", "row", "told"),
    [
        ("plain", {"key": KEY}, "does not fit store 'plain'; give the columns key string, value int64"),
        ("plain", {"key": KEY, "value": 1, "n": 2}, "does not fit store 'plain'"),
        ("plain", {"key": None, "value": 1}, "does not fit store 'plain'"),
        ("plain", {"key": KEY, "value": "many"}, "many"),
        ("times", {"key": "new", "value": 1}, "nothing for 'new' whose timestamp could stay; give the columns key"),
        (
            "versions",
            {"key": KEY, "value": 1},
            r"give the columns key string, value int64, valid_from \(--valid-from\) timestamp",
        ),
        ("sessions", {"key": KEY, "value": 1, "window_start": 3}, "window_end"),
        ("windows", {"key": KEY, "value": 1, "window_start": "now"}, "window_start"),
        ("versions", {"key": KEY, "value": 1, "valid_from": 5, "valid_to": 5}, "ends before it begins"),
        ("nosuch", {"key": KEY, "value": 1}, "there is no store 'nosuch'"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_with_the_columns_that_do(
    query: Query, store: str, row: dict[str, Any], told: str
) -> None:
    with editor(query) as edits, pytest.raises(MillpondError, match=told):
        edits.put(store, [row])


@pytest.mark.parametrize("store", NEW)
def test_a_put_that_fails_at_a_row_stages_none_of_its_rows_and_keeps_what_was_staged(query: Query, store: str) -> None:
    """Neither rows, nor the time that they would have moved, nor what the record says of them."""
    before = content(query)
    row, earlier = {"key": KEY, **NEW[store]}, {"key": KEYS[0], "value": 1, "timestamp": at(1)}
    with editor(query) as edits:
        edits.put("times", [earlier])
        with pytest.raises(MillpondError, match="does not fit"):
            edits.put(store, [row, {**row, "key": KEYS[1]}, {"key": KEY}], ahead=True)
        if store in AHEAD:
            with pytest.raises(ConfigurationError, match="is ahead of the time"):
                edits.put(store, [{"key": KEY, **AHEAD[store]}])
        (report,) = edits.commit()
    assert report.note.rows == {"put times": 1}
    expected = [row for row in before["times"] if row["key"] != KEYS[0]] + [earlier]
    found = content(query)
    assert sorted(found.pop("times"), key=repr) == sorted(expected, key=repr)
    assert found == {name: rows for name, rows in before.items() if name != "times"}


def test_a_first_window_needs_the_spec_that_tells_how_long_it_stays(tmp_path: Path) -> None:
    query = Query(tmp_path, [SPECS["windows"], StoreSpec("other", StoreKind.KEY_VALUE, STRING, STRING)])
    query.run(lambda stores, mine: stores["other"].put("a", "b"))
    row = {"key": "a", "value": 1, "window_start": at(10)}
    with (
        editor(query, specs={}) as edits,
        pytest.raises(ConfigurationError, match=r"give the topology: specs=topology\.stores"),
    ):
        edits.put("windows", [row])
    with editor(query) as edits:
        edits.put("windows", [row], ahead=True)
        edits.commit()
    assert [one["value"] for one in shown(query.inspector().store("windows"))] == [1]


def test_a_store_that_keeps_every_value_of_a_window_is_not_edited(tmp_path: Path) -> None:
    spec = StoreSpec(
        "waiting", StoreKind.WINDOW, STRING, STRING, retention=1000, window_size=10, retain_duplicates=True
    )
    query = Query(tmp_path, [spec])
    query.run(lambda stores, mine: [stores["waiting"].put("a", text, 10) for text in ("one", "two") if mine("a")])
    with editor(query, specs={}) as edits, pytest.raises(ConfigurationError, match="erase the key, or leave them"):
        edits.delete("waiting", "a")
    assert erase(query.inspector(), ["a"], by="ann").rows == {"waiting": 2}
    assert shown(query.inspector().store("waiting")) == []


AHEAD: dict[str, dict[str, Any]] = {
    "versions": {"value": 7, "valid_from": at(22)},
    "windows": {"value": 7, "window_start": at(30)},
    "stamped-windows": {"value": 7, "window_start": at(30), "timestamp": at(1)},
    "sessions": {"value": 7, "window_start": at(1), "window_end": at(500)},
}


@pytest.mark.parametrize("store", AHEAD)
def test_a_row_that_would_move_the_time_of_a_store_is_refused_unless_it_may(query: Query, store: str) -> None:
    rows = [{"key": KEY, **AHEAD[store]}]
    with editor(query) as edits:
        with pytest.raises(
            ConfigurationError, match=rf"ahead of the time of store '{store}', which is 1970-.*ahead=True"
        ):
            edits.put(store, rows)
        assert edits.put(store, rows, ahead=True) == 1
        edits.commit()
    assert 7 in [row["value"] for row in content(query)[store] if row["key"] == KEY]


def test_the_first_row_of_a_task_gives_its_store_a_time_and_is_refused_unless_it_may(tmp_path: Path) -> None:
    query = Query(tmp_path, [SPECS["versions"], SPECS["plain"]])
    query.run(lambda stores, mine: stores["plain"].put("a", 1))
    rows = [{"key": KEY, "value": 7, "valid_from": at(5)}]
    with editor(query) as edits:
        with pytest.raises(ConfigurationError, match="which has not begun in the task of its key"):
            edits.put("versions", rows)
        edits.put("versions", rows, ahead=True)
        edits.put("versions", [{"key": KEY, "value": 6, "valid_from": at(4)}])
        edits.commit()
    assert query.inspector().store("versions").history(KEY)["value"].to_pylist() == [6, 7]


def test_an_end_that_is_ahead_is_refused_like_a_beginning(query: Query) -> None:
    row = {"key": KEY, "value": 7, "valid_from": at(5), "valid_to": at(600)}
    with editor(query) as edits, pytest.raises(ConfigurationError, match=r"it would become 1970-01-01T00:00:00\.6"):
        edits.put("versions", [row])


def test_an_editor_is_for_one_commit_or_undo(query: Query) -> None:
    ended = editor(query)
    ended.put("plain", [{"key": KEY, "value": 3}])
    with pytest.raises(ConfigurationError, match="edits that are not committed, and undo takes back one that is"):
        ended.undo()
    assert len(ended.commit()) == 1
    undone = editor(query)
    assert len(undone.undo()) == 1
    closed = editor(query)
    closed.close()
    for edits, how in ((ended, "committed"), (undone, "undone"), (closed, "closed")):
        for call in (
            edits.commit,
            edits.undo,
            lambda one=edits: one.put("plain", [{"key": KEY, "value": 4}]),
            lambda one=edits: one.delete("plain", KEY),
            lambda one=edits: one.set_timer("timers", KEY, None),
        ):
            with pytest.raises(ConfigurationError, match=rf"were {how}, .* make a new one: StateEditor\.at"):
                call()
    with editor(query) as edits:
        edits.delete("plain", KEY)
        edits.commit()
    assert KEY not in {row["key"] for row in content(query)["plain"]}


def test_where_not_all_edits_of_a_commit_come_to_count_the_error_tells_which_do(tmp_path: Path) -> None:
    one = Query(tmp_path, [SPECS["plain"]])
    other = Query(tmp_path, [SPECS["plain"]], application_id="other")
    for query in (one, other):
        query.run(fill_plain)
    checkpoint: Any = BothCheckpoint(one.storage, [*one.manifests, *other.manifests])
    inspector = StateInspector(checkpoint, one.storage)

    def deleting(edits: StateEditor) -> None:
        for application in ("app", "other"):
            assert edits.delete("plain", KEY, application_id=application) == 1

    with StateEditor(inspector, "ann", "") as edits:
        deleting(edits)
        (one.state / "other" / "evolution" / "out" / "000001.json").write_text("of another job")
        with pytest.raises(StateConflictError, match=r"those of 'app' \('out'\) count, that of 'other' .* has failed"):
            edits.commit()
    (one.state / "other" / "evolution" / "out" / "000001.json").unlink()
    assert inspector.store("plain", application_id="app").get(KEY) is None
    assert inspector.store("plain", application_id="other").get(KEY) is not None
    StateEditor(inspector, "ann", "").undo()
    assert inspector.store("plain", application_id="app").get(KEY) is not None
    with StateEditor(inspector, "ann", "") as edits:
        deleting(edits)
        assert [report.application_id for report in edits.commit()] == ["app", "other"]


def test_a_micro_batch_meanwhile_is_noticed_before_any_edit_of_a_commit_counts(tmp_path: Path) -> None:
    one = Query(tmp_path, [SPECS["plain"]])
    other = Query(tmp_path, [SPECS["plain"]], application_id="other")
    for query in (one, other):
        query.run(fill_plain)
    checkpoint: Any = BothCheckpoint(one.storage, [*one.manifests, *other.manifests])
    with StateEditor(StateInspector(checkpoint, one.storage), "ann", "") as edits:
        for application in ("app", "other"):
            edits.delete("plain", KEY, application_id=application)
        checkpoint.batch += 1
        with pytest.raises(StateConflictError, match="nothing has been changed"):
            edits.commit()
    assert {History.of(one.storage, name, "out").next_generation for name in ("app", "other")} == {1}


def test_undo_takes_back_the_last_commit_and_none_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Query(tmp_path, [SPECS["plain"]])
    other = Query(tmp_path, [SPECS["plain"]], application_id="other")
    for query in (one, other):
        query.run(fill_plain)
    checkpoint: Any = BothCheckpoint(one.storage, [*one.manifests, *other.manifests])
    inspector = StateInspector(checkpoint, one.storage)
    clock = count(1_000)
    monkeypatch.setattr("millpond.adapters.edit.state_editor.host_ms", lambda: next(clock))

    def delete(*applications: str) -> None:
        with StateEditor(inspector, "ann", "") as edits:
            for application in applications:
                edits.delete("plain", KEY, application_id=application)
            edits.commit()

    def undo() -> list[str]:
        return [report.application_id for report in StateEditor(inspector, "ann", "").undo()]

    delete("app")
    delete("other")
    assert (undo(), undo()) == (["other"], ["app"])
    with pytest.raises(StateConflictError, match="is already undone"):
        undo()
    delete("other", "app")
    assert undo() == ["app", "other"]


def fill_plain(stores: Any, mine: Callable[[str], bool]) -> None:
    for key in filter(mine, KEYS):
        stores["plain"].put(key, 1)


@dataclass
class BothCheckpoint:
    """The answers of a ``SparkCheckpoint`` of a query with two applications."""

    storage: Any
    held: list[Manifest]
    batch: int = 0

    def chosen(self, _: int | None) -> int:
        return self.batch

    def manifests(self, _: int) -> list[Manifest]:
        return self.held


def test_rows_that_a_processor_has_put_into_another_task_are_found(query: Query) -> None:
    query.run(lambda stores, mine: None if mine(KEY) else put_everywhere(stores))
    before = content(query)
    with editor(query) as edits:
        assert {store: edits.delete(store, KEY) for store in ("plain", "versions", "windows")} == {
            "plain": 2,
            "versions": 2,
            "windows": 4,
        }
        edits.commit()
    for store in ("plain", "versions", "windows"):
        assert content(query)[store] == [row for row in before[store] if row["key"] != KEY]
    query.run(lambda stores, mine: None if mine("alone") else stores["plain"].put("alone", 1))
    with editor(query) as edits:
        edits.put("plain", [{"key": "alone", "value": 2}])
        edits.commit()
    assert [row["value"] for row in content(query)["plain"] if row["key"] == "alone"] == [2]


def put_everywhere(stores: Any) -> None:
    stores["plain"].put(KEY, 9)
    stores["versions"].put(KEY, 9, 20)
    stores["windows"].put(KEY, 9, 20)
