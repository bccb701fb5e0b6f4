"""The Python blocks of the pages: each of them runs, and prints what the page says.

From the first block of a page that needs Spark on, tests/spark/test_code_blocks.py runs it.
"""

import doctest
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millpond.cli import app
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Storage, TaskState
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from tests.inspect.checkpoints import Query
from tests.packaging.code_blocks import PAGES, ROOT, before_spark, blocks, run_blocks

COMMAND = re.compile(r"`((?:make|millpond) [^`]+)`")


def durable_state(place: Path) -> dict[str, Any]:
    """Return a store with one row, committed to the state directory that the page names."""
    spec = StoreSpec("counts", StoreKind.KEY_VALUE, STRING, INT64)
    storage = Storage.from_uri(place / "state")
    task = TaskState(
        [spec], supplier("memory"), application_id="a", task_id="0_0", local_dir=place / "local", storage=storage
    )
    with task as state:
        stores: Any = state.open(None)
        stores["counts"].put("mill", 3)
        return {"spec": spec, "manifest": state.commit()}


def stopped_query(place: Path) -> dict[str, Any]:
    """Return a query with a store, whose checkpoint and state directory are those that the page names."""
    query = Query(place, [StoreSpec("counts", StoreKind.KEY_VALUE, STRING, INT64)])
    query.run(lambda stores, mine: stores["counts"].put_all([(key, 3) for key in ("mill", "weir") if mine(key)]))
    return {}


PREAMBLES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "docs/durability.md": durable_state,
    "docs/editing-state.md": stopped_query,
}
"""What a page takes as given, by page."""


@pytest.mark.parametrize("page", [page for page in PAGES if before_spark(page)])
def test_the_python_blocks_of_a_page_do_what_it_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = PREAMBLES[page](tmp_path) if page in PREAMBLES else {}
    run_blocks(page, before_spark(page), tmp_path, names, monkeypatch)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "pycon")])
def test_the_sessions_on_a_page_run_as_they_are_shown(page: str) -> None:
    result = doctest.testfile(str(PAGES[page]), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_python_is_one_that_is_run(page: str) -> None:
    text = PAGES[page].read_text()
    assert len(re.findall(r"```\s*(?:python|py)\b", text)) == len(blocks(page))
    assert len(re.findall(r"```\s*pycon\b", text)) == len(blocks(page, "pycon"))
    plain = [code for _, code, _, _ in blocks(page, "")]
    assert [code for code in plain if re.search(r"^(from \w[\w.]* )?import \w", code, re.MULTILINE)] == []


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield each command line that a page tells its reader to type, and the page."""
    for page, path in PAGES.items():
        lines = [line for block in blocks(page, "sh") for line in block.commands]
        for line in [*lines, *COMMAND.findall(path.read_text())]:
            words = shlex.split(line, comments=True)
            if words:
                yield page, words


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = [(page, word) for page, words in commands() if words[0] == "make" for word in words[1:] if "=" not in word]
    assert ("README.md", "demo") in named
    assert [(page, target) for page, target in named if target not in targets] == []


@cache
def _help(words: tuple[str, ...]) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert result.exit_code == 0, f"millpond {' '.join(words)}: {result.output}"
    return result.output


def test_the_command_line_knows_every_command_and_option_that_a_page_shows() -> None:
    shown = [words[1:] for _, words in commands() if words[0].rpartition("/")[2] == "millpond"]
    assert any("--max-batches" in words for words in shown)
    for words in shown:
        options = [word.partition("=")[0] for word in words if word.startswith("-")]
        told = _help(tuple(takewhile(lambda word: not word.startswith("-"), words)))
        assert [option for option in options if not re.search(rf"{option}\b", told)] == []


def test_every_test_that_a_page_tells_to_run_exists() -> None:
    named = {word for _, words in commands() for word in words if word.startswith("tests/")}
    assert [path for path in named if not (ROOT / path.partition("::")[0]).exists()] == []
