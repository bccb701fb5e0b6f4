"""Code blocks of Markdown pages: finding them, and running a page's blocks one after the other as a reader would.

Blocks of one page share a namespace. A block that begins with a file's name (``# src/rules/__init__.py``) is that file,
and later blocks may import it. If a plain block follows, that is what the block prints.
"""

import contextlib
import io
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in [
        ROOT / "README.md",
        *ROOT.glob("CONTRIBUTING.md"),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]
}

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (?:src/|tests/)?(\w+)(/__init__)?\.py\n")
_SPARK = re.compile(r"\b(spark|SparkStreams)\b")


class Block(NamedTuple):
    """A block of code.

    Attributes:
        language: what follows the backticks; empty for a plain block.
        code: its text.
        line: the number of lines before it.
        printed: the plain block right after it, if there is one.
    """

    language: str
    code: str
    line: int
    printed: str | None

    @property
    def uses_spark(self) -> bool:
        return _SPARK.search(self.code) is not None

    @property
    def commands(self) -> list[str]:
        """The lines of a shell; one that ends with a backslash goes on in the next."""
        return self.code.replace("\\\n", " ").splitlines()


def blocks(page: str, language: str = "python") -> list[Block]:
    """Return the blocks of a page in that language, in order."""
    text = PAGES[page].read_text()
    found = list(_BLOCK.finditer(text))
    result = []
    for match, following in zip_longest(found, found[1:]):
        behind = following is not None and not following[1] and not text[match.end() : following.start()].strip()
        printed = following[2] if following is not None and behind else None
        result.append(Block(match[1], match[2], text.count("\n", 0, match.start(2)), printed))
    return [block for block in result if block.language == language]


def before_spark(page: str) -> list[Block]:
    """Return the page's Python blocks up to the first that needs Spark."""
    found = blocks(page)
    first = next((number for number, block in enumerate(found) if block.uses_spark), len(found))
    return found[:first]


def run_block(page: str, block: Block, names: dict[str, Any], replaced: Mapping[str, str]) -> None:
    """Run a block in the current directory and compare what it prints with what the page shows.

    Args:
        page: where the block is, for tracebacks.
        block: what to run.
        names: the page's namespace.
        replaced: texts that stand for places elsewhere, and what to put there instead.
    """
    code = block.code
    for text, instead in replaced.items():
        code = code.replace(text, instead)
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        if file := _FILE.match(code):
            path = Path(f"{file[1]}{file[2] or ''}.py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(code)
            import_module(file[1])
        else:
            exec(compile("\n" * block.line + code, PAGES[page], "exec"), names)
    if block.printed is not None:
        assert shown.getvalue() == block.printed, shown.getvalue()


def run_blocks(
    page: str, found: Sequence[Block], place: Path, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run blocks in ``place``, where files of the page can be imported from; a bucket of the page is a folder there."""
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    for block in found:
        if file := _FILE.match(block.code):
            monkeypatch.delitem(sys.modules, file[1], raising=False)
        run_block(page, block, names, {"s3://bucket": str(place)})
