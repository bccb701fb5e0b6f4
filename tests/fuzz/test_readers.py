"""State of any bytes: a reader returns data or refuses it with an error of Millpond's own, and executes nothing.

``make fuzz`` looks for more than these tests.
"""

import pickle
import re
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from millpond.stores.durability.parquet.rows import SCHEMA
from millpond.stores.encoding.serdes import serde
from tests.fuzz.canary import Executed, nothing_executes
from tests.fuzz.found import FOUND, durable_file
from tests.fuzz.fuzzer import ROOT
from tests.fuzz.reader import Reader
from tests.fuzz.readers import all_readers
from tests.fuzz.store_readers import serde_reader
from tests.fuzz.watched import watched


class Bomb:
    """Executes something when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return eval, ("1 + 1",)


BOMB = pickle.dumps(Bomb())


def program(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Return a module as a program: what it does to its process is seen, too."""
    return subprocess.run(
        [sys.executable, "-m", f"tests.fuzz.{name}", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_what_was_found_and_damaged_seeds_give_data_or_an_error_of_millponds() -> None:
    done = program("replay")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr


def test_every_reader_reads_its_seeds_and_all_that_was_found_belongs_to_a_reader() -> None:
    readers = all_readers()
    for reader in readers.values():
        assert reader.seeds
        for seed in reader.seeds:
            reader.read(seed)
    assert {name for name, _ in FOUND} <= set(readers)


def test_nothing_unpickles_unless_the_user_has_named_pickle() -> None:
    readers = all_readers()
    for reader in readers.values():
        watched(reader)(BOMB)
    # What Arrow before 14.0.1 unpickled as soon as a file was opened.
    type_: Any = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": BOMB}
    schema = pa.schema([field.with_metadata(type_) for field in SCHEMA])
    watched(readers["durable file"])(durable_file(schema))
    with pytest.raises(Executed, match="pickle"), nothing_executes():
        serde("pickle").deserialize(BOMB)


def test_only_the_serde_that_the_user_names_can_unpickle() -> None:
    rooms = [ROOT / room for room in ("stores", "processors", "adapters", "src/millpond/errors.py")]
    paths = [path for room in rooms for path in ([room] if room.is_file() else room.rglob("*.py"))]
    names = re.compile(r"pickle\.load|marshal|shelve|(?<![.\w])(?:eval|exec)\(")  # a method called so is another's
    found = {str(path.relative_to(ROOT)) for path in paths if names.search(path.read_text())}
    assert {path for path in found if not path.startswith("stores/testing/")} == {"stores/encoding/serdes.py"}


def test_a_reader_that_fails_is_noticed() -> None:
    with pytest.raises(Executed):
        watched(serde_reader(serde("pickle"), 1))(BOMB)
    with pytest.raises(KeyError):
        watched(Reader(dict[bytes, int]().__getitem__, ()))(b"")
    watched(Reader(serde("json").deserialize, ()))(b"{")


@pytest.mark.long
def test_a_fuzzer_that_is_guided_by_coverage_finds_nothing_in_a_minute() -> None:
    pytest.importorskip("atheris")
    done = program("fuzzer", "--seconds", "45")
    assert done.returncode == 0, done.stdout + done.stderr
