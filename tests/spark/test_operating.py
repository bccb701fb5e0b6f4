"""The page on operating: what it tells to type is typed, and prints what the page shows."""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from millpond.adapters.spark import watch
from millpond.cli import main
from tests.packaging.code_blocks import PAGES, Block, blocks
from tests.spark.small_query import BATCHES, Query

PAGE = "docs/operating.md"

pytestmark = [pytest.mark.spark, pytest.mark.long]

Type = Callable[[str], tuple[int, str]]


@pytest.fixture
def type_(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spark: SparkSession
) -> Type:
    """Types one line of the page, with its places below the test's directory; the exit code, and what it printed."""
    places = {"s3://bucket": tmp_path, "/data": tmp_path}
    places["/mnt/millpond"] = tmp_path / "local"
    monkeypatch.setenv("COLUMNS", "200")
    partitions = str(spark.conf.get("spark.sql.shuffle.partitions"))

    def typed(line: str) -> tuple[int, str]:
        for text, place in places.items():
            line = re.sub(rf"(?<!\S){text}", str(place), line)
        command, *words = shlex.split(line)
        if command != "millpond":
            return subprocess.run([command, *words], check=False).returncode, ""
        monkeypatch.setattr(sys, "argv", [command, *words])
        with pytest.raises(SystemExit) as ended:
            main()
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        return int(ended.value.code or 0), "".join(capsys.readouterr())

    return typed


def test_what_the_page_on_operating_tells_to_type_does_what_it_shows(
    spark: SparkSession, tmp_path: Path, type_: Type
) -> None:
    partitions = str(spark.conf.get("spark.sql.shuffle.partitions"))
    listener = watch(spark, keep=str(tmp_path / "progress"))
    try:
        query = Query(spark, tmp_path)
        query.run()
        kept(tmp_path / "progress", BATCHES)
    finally:
        spark.streams.removeListener(listener)
        spark.conf.set("spark.sql.shuffle.partitions", partitions)

    for section in ("Sizing", "What to watch", "Backing up", "Cleaning up"):
        assert {code for code, _ in walked(section, type_)} == {0}

    newest = max((tmp_path / "state").rglob("*.parquet"))
    whole = newest.read_bytes()
    damage(newest)
    codes, said = zip(*walked("When a task fails", type_), strict=True)
    assert codes == (1, 1, 0, 0)
    assert "key 0\t2" in said[-1]

    # The three ways: an undamaged copy of the file, local copies that stand in, and the state elsewhere.
    (state,) = (tmp_path / "backups").glob("*/state")
    saved = state / newest.relative_to(tmp_path / "state")
    assert saved.read_bytes() == whole
    newest.write_bytes(saved.read_bytes())
    verify = f"millpond state verify {query.checkpoint} --state-dir {tmp_path}/state"
    assert type_(verify)[0] == 0
    newest.write_bytes(whole[:-1])
    query.bring(BATCHES)
    query.run()
    assert type_(verify)[0] == 0
    assert query.counts() == {BATCHES + 1}

    for place, application_id in (("restored", "job"), ("clone", "flights-b")):
        moved = Query(spark, tmp_path / place, query.inputs, application_id)
        assert moved.counts() == {BATCHES}
        moved.run()
        assert moved.counts() == {BATCHES + 1}
    spark.conf.set("spark.sql.shuffle.partitions", partitions)


def walked(section: str, type_: Type) -> list[tuple[int, str]]:
    """Type all lines of a section; check that each block prints what the page shows."""
    done: list[tuple[int, str]] = []
    for block in of_section(section):
        said = [type_(line) for line in block.code.replace("\\\n", "").splitlines()]
        if block.printed is not None:
            printed = "".join(text for _, text in said)
            assert re.fullmatch(pattern(block.printed), printed.strip(), re.DOTALL), printed
        done += said
    return done


def of_section(section: str) -> list[Block]:
    """Return the blocks of shell in a section of the page."""
    headings = [line for line in enumerate(PAGES[PAGE].read_text().splitlines()) if line[1].startswith("## ")]
    starts = [number for number, _ in headings]
    begin = next(number for number, text in headings if text == f"## {section}")
    end = next((number for number in starts if number > begin), sys.maxsize)
    return [block for block in blocks(PAGE, "sh") if begin < block.line < end]


def pattern(shown: str) -> str:
    """Return a pattern of what is printed: dots, and bytes, stand for what differs from one state to another."""
    words = (re.escape(word).replace(re.escape("..."), ".*") for word in shown.split())
    return re.sub(r"\d{3,}", r"\\d+", r"\s+".join(words))


def kept(progress: Path, batches: int) -> None:
    """Wait until the progress of all micro-batches is kept, which Spark tells in a thread of its own."""
    deadline = time.monotonic() + 60
    while len(list(progress.rglob("*.json"))) < batches and time.monotonic() < deadline:
        time.sleep(0.05)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
