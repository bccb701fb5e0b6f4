"""Failures in a process of Spark's: the error leaves it without the secrets of the driver that has sent the work.

One process stands for all workers: it has no storage, and knows of secrets what comes with what it is sent.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NoReturn

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql import types as T
from pyspark.sql.datasource import InputPartition

from millpond.adapters.spark.copies.warming import WarmTasks
from millpond.adapters.spark.evolution.evolution import RunSome
from millpond.adapters.spark.evolution.seeds import EncodeSeed, WriteSeeds
from millpond.adapters.spark.operator.map_side import ProcessAndSend, ProcessToSink, SendSignal, SendToTasks
from millpond.adapters.spark.operator.task_operator import TaskOperator
from millpond.adapters.spark.outputs.query import _BatchWriter
from millpond.adapters.spark.reading.inspection import ReadStore
from millpond.adapters.spark.reading.state_source import ReadRequest, StateReader, StateSource
from millpond.adapters.spark.rows.dead_letters import ErrorHandling
from millpond.adapters.spark.rows.left_out import _Read
from millpond.adapters.spark.rows.sink_blobs import to_columns
from millpond.adapters.spark.session.sent import in_workers
from millpond.adapters.spark.verbs.frames.sink import UnpackBesideManifests
from millpond.adapters.spark.worker.attempt import Attempt
from millpond.masking import know_secret
from millpond.processors import OnError
from millpond.processors.runtime.failures import DeadLetter
from millpond.stores.durability import Storage
from millpond.stores.encoding.times import TimeUnit

ROOT: Final = Path(__file__).parents[2]


class Fails:
    """A library that says what it was given, whatever it is asked."""

    def __init__(self, text: str) -> None:
        self.__dict__["text"] = text

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise OSError(5, "no answer", f"https://storage.example/x?sig={self.__dict__['text']}")

    def __call__(self, batches: Any) -> Any:
        return self.anything


class Frame:
    """Rows that are about to be sent to workers: it shows what would be."""

    def mapInArrow(self, function: Any, _: Any) -> Any:
        return function


FRAME: Final[Any] = Frame()


def sent(function: Any) -> Any:
    return in_workers(FRAME, function, "id long")


def batches_after(text: str) -> Iterator[Any]:
    """Yield the rows of a source that fails."""
    yield Fails(text).anything


def failing(text: str) -> Any:
    return Fails(text)


def for_tasks(fails: Any) -> ProcessAndSend:
    return ProcessAndSend(fails, fails, fails, fails, {}, [0])


def asked() -> Any:
    return SimpleNamespace(selection=None)


def in_arrow(function: Any, text: str) -> None:
    list(function(batches_after(text)))


def in_task(operator: Any, _: str) -> None:
    list(operator.handleInputRows((0,), iter(()), None))


def in_reader(pair: Any, _: str) -> None:
    reader, partition = pair
    list(reader.read(partition))


def in_sinks(writer: Any, text: str) -> None:
    writer.write(Fails(text), 0)


Way = tuple[Callable[[str], Any], Callable[[Any, str], None]]

UNSENT: Final = "a function that nobody has sent so"

WAYS: Final[Mapping[str, Way]] = {
    UNSENT: (failing, in_arrow),
    "a function": (lambda text: sent(failing(text)), in_arrow),
    "records for tasks": (lambda text: sent(SendToTasks(*[failing(text)] * 3)), in_arrow),
    "signals": (lambda _: sent(SendSignal(0, [0])), in_arrow),
    "what keeps nothing, for tasks": (lambda text: sent(for_tasks(failing(text))), in_arrow),
    "what keeps nothing, for a sink": (lambda text: sent(ProcessToSink(*[failing(text)] * 4)), in_arrow),
    "seeds that are read": (lambda text: sent(EncodeSeed(*[failing(text)] * 2)), in_arrow),
    "seeds that are written": (lambda text: sent(WriteSeeds(failing(text))), in_arrow),
    "state that is carried over": (lambda text: sent(RunSome(failing(text))), in_arrow),
    "copies that are warmed": (lambda text: sent(WarmTasks([failing(text)])), in_arrow),
    "stores that are read": (lambda text: sent(ReadStore(*[failing(text)] * 3)), in_arrow),
    "rows that were left out": (lambda text: sent(_Read(*[failing(text)] * 2)), in_arrow),
    "rows of sinks": (lambda _: to_columns(FRAME, "id long"), in_arrow),
    "results of a backfill": (lambda _: sent(UnpackBesideManifests(pa.schema([]))), in_arrow),
    "tasks": (lambda text: TaskOperator(failing(text), ("name", "id long")), in_task),
    "the state source": (lambda text: (StateReader(asked(), T.StructType()), InputPartition(failing(text))), in_reader),
    "several sinks": (lambda _: _BatchWriter([], "query"), in_sinks),
}
"""What is sent for each kind of work, and what a process does with it."""

WORKER: Final = """
import json, sys, traceback
sys.path.insert(0, sys.argv[1])
from pyspark import cloudpickle
said = []
for line in sys.stdin:
    packed, act, text = (cloudpickle.loads(bytes.fromhex(part)) for part in line.split())
    try:
        act(packed, text)
    except Exception as error:
        said.append("".join(traceback.format_exception(error)))
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """Return what each way tells of an error, in the order of the ways: each has a secret of its own."""
    lines = []
    pack: Any = cloudpickle.dumps
    for number, (make, act) in enumerate(WAYS.values()):
        text = f"hunter-{number:02d}/secret"
        made = make(text)
        if number:
            know_secret(text)
        lines.append(" ".join(pack(part).hex() for part in (made, act, text)))
    command = [sys.executable, "-c", WORKER, str(ROOT)]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True)
    return dict(zip(WAYS, json.loads(done.stdout), strict=True))


@pytest.mark.first
def test_an_error_shows_what_a_worker_was_not_told(said: dict[str, str]) -> None:
    assert "sig=hunter-00/secret" in said[UNSENT]


@pytest.mark.parametrize("way", [way for way in WAYS if way != UNSENT])
def test_no_error_leaves_a_worker_with_a_secret_of_the_driver(said: dict[str, str], way: str) -> None:
    assert "hunter-" not in said[way]
    assert "no answer" in said[way]


def test_nothing_is_sent_to_workers_in_another_way() -> None:
    def calls(path: Path) -> Iterator[str]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in (
                *("mapInArrow", "mapInPandas", "applyInPandas", "applyInArrow", "mapPartitions", "foreachPartition"),
                *("foreachBatch", "transformWithState", "transformWithStateInPandas", "udf", "pandas_udf"),
            ):
                yield f"{path.name}: {node.attr}"

    found = {call for path in (ROOT / "adapters" / "spark").rglob("*.py") for call in calls(path)}
    assert found == {
        "sent.py: mapInArrow",
        "dataflow.py: transformWithStateInPandas",
        "query.py: foreachBatch",
        "what_if.py: foreachBatch",  # which is refused in Spark Connect, so it runs where secrets are known
    }


def test_what_spark_asks_of_the_state_source_before_it_reads_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    know_secret("hunter-98/secret")
    monkeypatch.setattr(ReadRequest, "by", Fails("hunter-98%2Fsecret"))
    source = StateSource({"checkpoint": "/checkpoint", "state_dir": "/state", "store": "counts"})
    for ask in (source.schema, lambda: source.reader(T.StructType())):
        with pytest.raises(OSError, match=r"x\?sig=\*\*\*"):
            ask()


def test_what_is_kept_of_a_record_that_was_left_out_has_no_secret(tmp_path: Path) -> None:
    know_secret("hunter-99/secret")
    handling = ErrorHandling(
        OnError.DEAD_LETTER, Storage.from_uri(tmp_path), "app", "sink", "run", TimeUnit.MILLISECOND
    )
    box = handling.box("split", Attempt.here())
    assert box.keep_letter is not None
    box.keep_letter(
        DeadLetter("map", "0_0", (), "dropped-user-error", "no answer from x?sig=hunter-99%2Fsecret", "k", "v", 1)
    )
    (row,) = box._letters._rows
    assert row["error"] == "no answer from x?sig=***"
