"""An erased key is nowhere: not in state, files, copies and what was left out; other keys stay as they are."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.adapters.edit import StateEditor, erase
from millpond.errors import ConfigurationError, StateConflictError
from millpond.stores import STRING, StoreKind, StoreSpec
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Storage, TaskState
from millpond.stores.encoding.serdes import INT64
from millpond.stores.evolution.history import History
from millpond.stores.typed.windows.windowed import Windowed
from tests.inspect.checkpoints import SPECS, Query
from tests.inspect.test_state_inspector import shown

PERSON, VALUE = "ann of the mill pond", "her secret of 17 words"
TEXTS = {
    name: StoreSpec(
        name,
        spec.kind,
        STRING,
        STRING,
        **{option: getattr(spec, option) for option in spec.kind.traits.needed},
    )
    for name, spec in SPECS.items()
}  # fmt: skip


def content(query: Query) -> dict[str, list[dict[str, Any]]]:
    return {name: sorted(shown(query.inspector(specs=TEXTS).store(name)), key=repr) for name in TEXTS}


def fill(number: int, value: str = VALUE) -> Callable[[Any, Any], None]:
    def change(stores: Any, mine: Callable[[str], bool]) -> None:
        for key in filter(mine, [PERSON, *(f"somebody else {n}" for n in range(8))]):
            text = value if key == PERSON else f"nothing {number}"
            stores["plain"].put(key, text)
            stores["times"].put(key, text, number)
            stores["versions"].put(key, text, number)
            stores["windows"].put(key, text, 10 * number)
            stores["stamped-windows"].put(key, text, number, 10 * number)
            stores["sessions"].put(Windowed(key, 10 * number, 10 * number + 3), text)

    return change


def filled(directory: Path) -> Query:
    query = Query(directory, list(TEXTS.values()))
    for number in range(3):
        query.run(fill(number, f"{VALUE}, {number}"))
    return query


def bytes_found(*directories: Path) -> list[Path]:
    """Return the files that have bytes of the person, read without what erases them."""
    found = []
    for path in (one for directory in directories for one in directory.rglob("*") if one.is_file()):
        data = path.read_bytes()
        if path.suffix == ".parquet":
            data += repr(pq.read_table(pa.BufferReader(data)).to_pylist()).encode()
        if PERSON.encode() in data or VALUE.encode() in data:
            found.append(path)
    return found


def everywhere(query: Query) -> list[Path]:
    return bytes_found(query.state, query.checkpoint, query.directory / "local")


def test_an_erased_key_is_in_no_file_and_other_keys_stay(tmp_path: Path) -> None:
    query = filled(tmp_path)
    others = {name: [row for row in rows if row["key"] != PERSON] for name, rows in content(query).items()}
    assert len(everywhere(query)) >= 3
    report = erase(query.inspector(), [PERSON], by="ann", why="she asks for it")
    assert report.rows == {
        "plain": 1, "times": 1, "versions": 3, "windows": 3, "stamped-windows": 3, "sessions": 3,
    }  # fmt: skip
    assert everywhere(query) == []
    assert report.traces == ()
    assert report.files >= 3
    assert content(query) == others
    query.run(lambda stores, mine: None)
    assert content(query) == others
    query.run(fill(4, "back again"))
    assert [row["value"] for row in shown(query.inspector().store("plain")) if row["key"] == PERSON] == ["back again"]


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_local_copies_of_its_tasks_are_deleted_on_every_backend(tmp_path: Path, backend: str) -> None:
    query = filled(tmp_path)
    local = tmp_path / "copies" / f"out@{query.storage.place}"
    for manifest in query.manifests:
        options: dict[str, Any] = {"application_id": "app", "task_id": manifest.task_id, "local_dir": local}
        with TaskState(list(TEXTS.values()), supplier(backend), storage=query.storage, **options) as state:
            state.open(manifest)
    if backend != "memory":
        assert bytes_found(tmp_path / "copies")
    report = erase(query.inspector(), [PERSON], by="ann", local_dirs=[tmp_path / "copies"])
    assert bytes_found(tmp_path / "copies", query.state) == []
    assert report.copies == (0 if backend == "memory" else len(query.manifests) * len(TEXTS))
    assert report.traces == ()


def test_what_was_deleted_before_is_erased_from_files_and_an_erasure_can_be_repeated(tmp_path: Path) -> None:
    query = filled(tmp_path)
    with StateEditor.at(str(query.checkpoint), str(query.state), by="ann") as edits:
        for name in TEXTS:
            edits.delete(name, PERSON)
        edits.commit()
    query.run(lambda stores, mine: None)
    assert everywhere(query)
    for _ in range(2):
        erase(query.inspector(), [PERSON], by="ann")
        assert everywhere(query) == []


def test_it_is_not_undone(tmp_path: Path) -> None:
    query = filled(tmp_path)
    erase(query.inspector(), [PERSON], by="ann")
    with pytest.raises(StateConflictError, match=r"keys were erased .* no longer exists anywhere, so it cannot"):
        StateEditor.at(str(query.checkpoint), str(query.state), by="ann").undo()
    with StateEditor.at(str(query.checkpoint), str(query.state), by="ann") as edits:
        edits.put("plain", [{"key": PERSON, "value": "anew"}])
        edits.commit()
    query.run(lambda stores, mine: None)
    assert [row["value"] for row in content(query)["plain"] if row["key"] == PERSON] == ["anew"]


def test_keys_are_erased_again_from_a_query_that_has_gone_on_meanwhile_once_it_is_stopped(tmp_path: Path) -> None:
    query = filled(tmp_path)
    running = History.of(query.storage, "app", "out").newest

    class Meanwhile(Storage):
        """Storage on which the running query goes on as soon as the erasure counts."""

        def put_once(self, path: str, content: bytes) -> None:
            super().put_once(path, content)
            if path.endswith("000001.json"):
                query.run(fill(3, VALUE), running)

    inspector = replace(query.inspector(), storage=Meanwhile.from_uri(query.state))
    with pytest.raises(StateConflictError, match=r"no file was deleted; stop it, and erase again \["):
        erase(inspector, [PERSON], by="ann")
    assert everywhere(query)
    others = {name: [row for row in rows if row["key"] != PERSON] for name, rows in content(query).items()}
    erase(query.inspector(), [PERSON], by="ann")
    assert everywhere(query) == []
    query.run(lambda stores, mine: None)
    assert content(query) == others


def everything(query: Query) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in query.directory.rglob("*") if path.is_file()}


def test_a_key_that_never_was_there_leaves_all_as_it_was_and_an_edit_can_be_undone(tmp_path: Path) -> None:
    query = filled(tmp_path)
    with StateEditor.at(str(query.checkpoint), str(query.state), by="bob") as edits:
        edits.delete("plain", "somebody else 1")
        edits.commit()
    before = everything(query)
    report = erase(query.inspector(), [f"{PERSON} and son"], by="bob", local_dirs=[tmp_path / "local"])
    assert (report.edits, report.rows, report.files) == ((), {}, 0)
    assert "nothing was found to erase, and all is as it was" in report.lines()
    assert everything(query) == before
    assert len(StateEditor.at(str(query.checkpoint), str(query.state), by="bob").undo()) == 1


def test_where_its_bytes_are_in_rows_of_other_keys_is_told(tmp_path: Path) -> None:
    query = filled(tmp_path)
    query.run(lambda stores, mine: stores["plain"].put("a friend", f"knows {PERSON}") if mine("a friend") else None)
    (trace,) = erase(query.inspector(), [PERSON], by="ann").traces
    assert trace.rows == 1
    assert Path(trace.where) in everywhere(query)


def test_rows_that_were_left_out_go_too(tmp_path: Path) -> None:
    query = filled(tmp_path)
    for kind, column in (("dead-letters", pa.binary()), ("late-rows", pa.string())):
        place = query.state / "app" / kind / "out"
        place.mkdir(parents=True)
        rows: list[dict[str, Any]] = [
            {"key": "somebody", "value": "else"},
            {"key": PERSON, "value": "x"},
            {"key": None, "value": PERSON},
        ]
        schema = pa.schema([("key", pa.string()), ("value", column)])
        pq.write_table(pa.Table.from_pylist(rows[:2], schema=schema), place / "some.parquet")
        pq.write_table(pa.Table.from_pylist(rows[2:], schema=schema), place / "all.parquet")
    report = erase(query.inspector(), [PERSON], by="ann")
    assert {what: rows for what, rows in report.rows.items() if what.startswith("app/")} == {
        "app/dead-letters/out": 2,
        "app/late-rows/out": 2,
    }
    assert everywhere(query) == []
    left = pq.read_table(query.state / "app" / "dead-letters" / "out" / "some.parquet").to_pylist()
    assert left == [{"key": "somebody", "value": b"else"}]


def test_a_key_that_no_store_can_have_is_refused_and_nothing_happens(tmp_path: Path) -> None:
    query = Query(tmp_path, [StoreSpec("numbers", StoreKind.KEY_VALUE, INT64, INT64)])
    query.run(lambda stores, mine: stores["numbers"].put(7, 7))
    with pytest.raises(ConfigurationError, match="'seven' can be the key of no store"):
        erase(query.inspector(), ["seven"], by="ann")
    with pytest.raises(ConfigurationError, match="an erasure needs the name of its author"):
        erase(query.inspector(), [7], by="")
    assert [row["value"] for row in shown(query.inspector().store("numbers"))] == [7, 7]
    erase(query.inspector(), [7], by="ann")
    assert len(shown(query.inspector().store("numbers"))) < 2


def test_older_lineages_of_the_query_and_of_its_earlier_generations_go_and_those_of_others_stay(tmp_path: Path) -> None:
    query = filled(tmp_path)
    erase(query.inspector(), ["somebody else 1"], by="ann")
    left = query.state / "app" / "0_0" / "0123456789abcdef0123456789abcdef"
    left.mkdir()
    other = left / "000000000001-fedcba9876543210fedcba9876543210.snapshot.parquet"
    pq.write_table(pa.table({"key": ["of another query"]}), other)
    query.run(lambda stores, mine: None)
    erase(query.inspector(), [PERSON], by="ann")
    assert other.exists()
    assert len(list((query.state / "app" / "0_0").iterdir())) == 2
    assert everywhere(query) == []


def test_a_key_that_is_too_short_is_erased_and_nobody_says_that_it_was_searched_for(tmp_path: Path) -> None:
    query = Query(tmp_path, [StoreSpec("plain", StoreKind.KEY_VALUE, STRING, STRING)])
    query.run(lambda stores, mine: stores["plain"].put("ann", "x") if mine("ann") else None)
    report = erase(query.inspector(), ["ann"], by="ann")
    assert (report.rows, report.searched) == ({"plain": 1}, False)
    assert "not searched for: what has less than four bytes, which any file has" in report.lines()


def test_letters_that_only_tell_of_a_key_stay_and_are_found(tmp_path: Path) -> None:
    query = filled(tmp_path)
    place = query.state / "app" / "dead-letters" / "out"
    place.mkdir(parents=True)
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    schema = pa.schema([("key", pa.string()), ("error", pa.string()), ("headers", header)])
    letters: list[dict[str, Any]] = [
        {"key": "windmill", "error": f"no row of {PERSON} here", "headers": None},
        {"key": "other", "error": None, "headers": [{"key": "who", "value": PERSON.encode()}]},
        {"key": f'{{"k": "{PERSON}"}}', "error": None, "headers": None},
    ]
    pq.write_table(pa.Table.from_pylist(letters, schema=schema), place / "some.parquet")
    (trace,) = erase(query.inspector(), [PERSON], by="ann").traces
    assert (Path(trace.where).name, trace.rows) == ("some.parquet", 1)
    assert [row["key"] for row in pq.read_table(place / "some.parquet").to_pylist()] == ["windmill"]


def test_a_query_that_goes_on_from_before_an_erasure_is_told_of_it(tmp_path: Path) -> None:
    query = filled(tmp_path)
    held = dict(enumerate(query.manifests))
    erase(query.inspector(), [PERSON], by="ann")
    late = [replace(manifest, snapshot=None, deltas=(manifest.files[-1],)) for manifest in held.values()]
    stray = [replace(one, deltas=(one.deltas[0]._replace(commit="f" * 32),)) for one in late]
    with pytest.raises(StateConflictError, match=r"keys were erased .* the erased rows would be missing"):
        History.of(query.storage, "app", "out").standing(stray, 3)
    (tmp_path / "anew").mkdir()
    (tmp_path / "anew" / "state").symlink_to(query.state)
    anew = Query(tmp_path / "anew", list(TEXTS.values()), application_id="anew")
    anew.run(fill(4, "back again"))
    found = [
        row["value"] for row in shown(anew.inspector().store("plain", application_id="anew")) if row["key"] == PERSON
    ]
    assert found == ["back again"]
