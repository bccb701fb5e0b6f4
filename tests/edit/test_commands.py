"""The commands that edit state: what they do and say, and how they end."""

import json
from getpass import getuser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millpond.cli import app
from millpond.errors import ConfigurationError, MillpondError, StateConflictError
from millpond.stores import MSGPACK, STRING, StoreKind, StoreSpec
from tests.command_line.documented import KEYS as DOCUMENTED
from tests.inspect.checkpoints import Query
from tests.inspect.test_state_inspector import KEYS, filled

KEY = KEYS[3]


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return filled(tmp_path)


def run(query: Query, command: str, *arguments: object, code: int = 0) -> str:
    places = [str(query.checkpoint), *map(str, arguments), "--state-dir", str(query.state)]
    result = CliRunner().invoke(app, ["state", command, *places])
    if isinstance(result.exception, MillpondError):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def told(query: Query, command: str, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(query, command, *arguments, "--json"))
    assert tuple(found) == DOCUMENTED[f"state {command}"]
    return found


def values(query: Query, store: str, key: str = KEY) -> list[Any]:
    result = CliRunner().invoke(
        app, ["state", "get", str(query.checkpoint), store, key, "--state-dir", str(query.state), "--json"]
    )
    return [json.loads(line)["value"] for line in result.stdout.splitlines()]


def test_rows_are_put_deleted_and_brought_back(query: Query) -> None:
    found = told(query, "put", "plain", KEY, 70, "--why", "counted twice")
    assert (found["by"], found["why"], found["rows"]) == (getuser(), "counted twice", {"put plain": 1})
    assert values(query, "plain") == [70]
    assert told(query, "put", "times", KEY, 71, "--by", "bob")["by"] == "bob"
    assert values(query, "times") == [71]
    late = ("put", "versions", KEY, 72, "--valid-from", "1970-01-01T00:00:00.900Z")
    with pytest.raises(ConfigurationError, match="put it with ahead=True, which is --ahead"):
        told(query, *late)
    with pytest.raises(ConfigurationError, match=r"value int64, valid_from \(--valid-from\) timestamp"):
        told(query, *late[:4])
    told(query, *late, "--ahead")
    assert values(query, "versions") == [72]
    told(query, "put", "windows", KEY, 73, "--window-start", 20)
    told(query, "reset-window", "windows", KEY, 10)
    assert values(query, "windows") == [0, 73]
    assert told(query, "delete", "plain", KEY)["rows"] == {"delete plain": 1}
    assert values(query, "plain") == []
    assert told(query, "undo")["rows"] == {"undo delete plain": 1}
    assert values(query, "plain") == [70]
    assert "app, out: generation 8, after micro-batch 2, by" in run(query, "delete", "plain", KEY)


def test_what_is_not_there_ends_with_1_and_changes_nothing(query: Query) -> None:
    assert "store 'plain' has nothing for the key 'nobody'" in run(query, "delete", "plain", "nobody", code=1)
    assert "has no such window of the key" in run(query, "reset-window", "windows", KEY, 11, code=1)
    assert "nothing was found to erase" in run(query, "erase", "nobody at all", code=1)
    with pytest.raises(StateConflictError, match="there is no edit to be undone"):
        run(query, "undo", code=1)


def test_a_null_that_deletes_nothing_ends_with_1(tmp_path: Path) -> None:
    query = Query(tmp_path, [StoreSpec("packs", StoreKind.KEY_VALUE, STRING, MSGPACK)])
    query.run(lambda stores, mine: stores["packs"].put(KEY, 1) if mine(KEY) else None)
    assert "store 'packs' has nothing for the key 'nobody'" in run(query, "put", "packs", "nobody", "null", code=1)
    assert "generation 1" in run(query, "put", "packs", KEY, "null")
    assert values(query, "packs") == []


def test_keys_are_erased_and_what_is_still_found_ends_with_1(query: Query) -> None:
    found = told(query, "erase", KEY)
    assert found["rows"] == {
        "plain": 1, "times": 1, "versions": 3, "windows": 3, "stamped-windows": 3, "sessions": 3,
    }  # fmt: skip
    assert found["traces"] == []
    assert values(query, "plain") == []
    assert "searched: no file of the state directory" in run(query, "erase", KEYS[2], KEYS[4])
    (query.state / "app" / "notes").write_text(f"of {KEY}")
    assert f"still found: {query.state / 'app' / 'notes'}" in run(query, "erase", KEY, code=1)


def test_a_value_that_the_store_cannot_have_is_refused(query: Query) -> None:
    with pytest.raises(ConfigurationError, match="'many' is no value of the int64 serde"):
        run(query, "put", "plain", KEY, "many")
