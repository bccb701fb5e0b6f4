"""The Tab key: commands, backends, kinds, and the stores of a query that is on this machine."""

from pathlib import Path

import pytest

from tests.command_line.processes import millpond
from tests.inspect.test_state_inspector import filled


def completed(shell: str, words: str, place: int) -> set[str]:
    """Return what a shell is told for a line whose last word is not done; bash counts words, the others do not."""
    given = {"_MILLPOND_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    given |= {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = millpond(**given)
    return {word.strip('"') for word in done.stdout.decode().replace('"', " ").split()}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_backends_are_completed(shell: str) -> None:
    assert {"lmdb"} <= completed(shell, "millpond demo --backend l", 3)
    assert "rocksdb" not in completed(shell, "millpond demo --backend l", 3)
    assert {"memory", "rocksdb"} <= completed(shell, "millpond backends check ", 3)


def test_kinds_are_completed() -> None:
    assert completed("bash", "millpond import kafka-streams d --kind v", 5) == {"versioned"}


def test_stores_are_completed_where_the_line_says_of_which_query(tmp_path: Path) -> None:
    query = filled(tmp_path)
    line = f"millpond state get {query.checkpoint} --state-dir {query.state} ti"
    assert completed("bash", line, 6) == {"times"}
    assert completed("bash", f"millpond state get {query.checkpoint} ti", 4) == set()
    assert completed("bash", f"millpond state get s3://bucket/c --state-dir {query.state} ti", 6) == set()
    assert completed("bash", f"millpond state get {tmp_path} --state-dir {query.state} ti", 6) == set()
