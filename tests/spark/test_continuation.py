"""Continuing a checkpoint: what the new one says, deaths on the way, and what is refused. No Spark runs here."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from millpond.adapters.spark.continuation.continuation import Continuation
from millpond.adapters.spark.continuation.logs import CheckpointLogs, OffsetLog
from millpond.adapters.spark.continuation.sources import origins_of
from millpond.adapters.spark.evolution.evolution import Evolution, Standpoint, Whereabouts, generation_at, in_threads
from millpond.adapters.spark.session.checkpoint import Checkpoint
from millpond.errors import ConfigurationError, DurabilityError, StateConflictError
from millpond.processors import Consumed, Materialized, StreamsBuilder
from millpond.processors.distribution.plan import Plan, make_plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.stores.durability import Storage
from millpond.stores.evolution.history import History
from tests.inspect.checkpoints import PARTITIONS
from tests.inspect.test_state_inspector import filled

LAST = 7
CONF = {"spark.sql.shuffle.partitions": "200", "spark.sql.streaming.multipleWatermarkPolicy": "min"}
ORDERS, RATES, RETURNS = (f"FileStreamSource[file:/in/{name}]" for name in ("orders", "rates", "returns"))


class Killed(Exception):
    """The process dies here."""


@dataclass
class MemoryFiles:
    """Files by path. The process dies at the ``fatal``-th change: before it, in the middle of it, or after it."""

    content: dict[str, str]
    fatal: int = 0
    moment: str = "before"
    changes: int = 0

    def qualified(self, path: str) -> str:
        return path.rstrip("/")

    def exists(self, path: str) -> bool:
        return path in self.content or bool(self._below(path))

    def files(self, directory: str) -> Sequence[str]:
        return sorted(name for name in self._names(directory) if "/" not in name)

    def directories(self, directory: str) -> Sequence[str]:
        return sorted({name.partition("/")[0] for name in self._names(directory) if "/" in name})

    def read(self, path: str) -> str:
        return self.content[path]

    def write(self, path: str, text: str) -> None:
        assert not self.exists(path)
        self._change([lambda: self.content.update({path: text})])

    def copy(self, source: str, target: str) -> None:
        assert not self.exists(target)
        paths = self._below(source) or [source]
        self._change([partial(self._copy, path, source, target) for path in paths])

    def rename(self, source: str, target: str) -> None:
        """Rename as an object store does: by copying and deleting, one file after the other."""
        assert not self.exists(target)
        paths = self._below(source) or [source]
        self._change([partial(self._move, path, source, target) for path in paths])

    def delete(self, path: str) -> None:
        paths = [path] if path in self.content else self._below(path)
        if paths:
            self._change([partial(self.content.pop, path) for path in paths])

    def _change(self, steps: Sequence[Callable[[], object]]) -> None:
        self.changes += 1
        dies = self.changes == self.fatal
        done = {"before": 0, "in the middle": len(steps) // 2, "after": len(steps)}[self.moment] if dies else len(steps)
        for step in steps[:done]:
            step()
        if dies:
            raise Killed

    def _copy(self, path: str, source: str, target: str) -> None:
        self.content[target + path.removeprefix(source)] = self.content[path]

    def _move(self, path: str, source: str, target: str) -> None:
        self._copy(path, source, target)
        del self.content[path]

    def _below(self, directory: str) -> list[str]:
        return sorted(path for path in self.content if path.startswith(f"{directory}/"))

    def _names(self, directory: str) -> list[str]:
        return [path.removeprefix(f"{directory}/") for path in self._below(directory)]


def offset_log(*offsets: str, batch: int) -> str:
    metadata = {"batchWatermarkMs": 10 * batch, "batchTimestampMs": batch, "conf": CONF}
    return OffsetLog(metadata, offsets).text()


def old_checkpoint(*, planned: bool = False) -> dict[str, str]:
    """Return the checkpoint of a query of two sources of files after its micro-batch ``LAST``."""
    content = {"/old/metadata": '{"id":"1837db81"}', f"/old/commits/{LAST}": 'v1\n{"nextBatchWatermarkMs":71}'}
    for batch in range(LAST - 3, LAST + 1 + planned):
        positions = [f'{{"logOffset":{batch + ahead}}}' for ahead in (0, 10)]
        content[f"/old/offsets/{batch}"] = offset_log(*positions, batch=batch)
    for source, name in enumerate(("orders", "rates")):
        for number in range(2):
            entry = json.dumps({"path": f"file:///in/{name}/part-{number}", "timestamp": 1, "batchId": number})
            content[f"/old/sources/{source}/{number}"] = f"v1\n{entry}"
    return content


def run_by_spark(files: MemoryFiles, location: str) -> None:
    """Leave what Spark leaves of a micro-batch without rows that runs two operators."""
    assert json.loads(files.content[f"{location}/metadata"]) == {"id": "1837db81"}
    _, metadata, *offsets = files.content[f"{location}/offsets/0"].splitlines()
    assert json.loads(metadata)["conf"]["spark.sql.shuffle.partitions"] == "4"
    assert set(offsets) == {"-"}
    made = {"commits/0": 'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["a"]]}}', "sources/0/0": "begun"}
    for operator in range(2):
        for part in range(2):
            made[f"state/{operator}/{part}/1_a.zip"] = "empty"
            made[f"state/{operator}/{part}/1_a.zip.crc"] = "checksum"
        schema = f"{location}/state/{operator}/_stateSchema/default/0_b"
        made[f"state/{operator}/_metadata/v2/0"] = f'v2\n{{"stateSchemaFilePaths":["{schema}"]}}'
        made[f"state/{operator}/_stateSchema/default/0_b"] = "schema"
    files.content.update({f"{location}/{path}": text for path, text in made.items()})


def make(
    files: MemoryFiles,
    *sources: str,
    declared: Mapping[int, int | None] | None = None,
    old: str = "/old",
    new: str = "/new",
) -> dict[str, str]:
    """Continue, unless that has been done, as a job does each time that it starts; gives what is below the new one."""

    def run_void_batch(location: str) -> Sequence[str]:
        run_by_spark(files, location)
        return sources

    continuation = Continuation.between(files, old, new)
    if not continuation.is_made():
        continuation.make(range(len(sources)), 4, run_void_batch, declared)
        assert continuation.is_made()
    return {path.removeprefix(f"{new}/"): text for path, text in files.content.items() if path.startswith(f"{new}/")}


def test_the_new_checkpoint_stands_where_the_old_one_stands_with_empty_state_and_the_sources_in_their_new_order() -> (
    None
):
    old = old_checkpoint()
    files = MemoryFiles(dict(old))
    made = make(files, RETURNS, RATES, ORDERS, declared={0: None, 1: 1, 2: 0})
    assert {path: text for path, text in files.content.items() if not path.startswith("/new/")} == old
    assert made.pop("metadata") == old["/old/metadata"]
    assert made.pop(f"commits/{LAST}") == 'v2\n{"nextBatchWatermarkMs":71,"stateUniqueIds":{"0":[["a"]]}}'
    for batch in (LAST - 1, LAST):
        version, metadata, *offsets = made.pop(f"offsets/{batch}").split("\n")
        assert version == "v1"
        assert json.loads(metadata)["batchWatermarkMs"] == 10 * batch
        assert json.loads(metadata)["conf"] == {**CONF, "spark.sql.shuffle.partitions": "4"}
        assert offsets == ["-", f'{{"logOffset":{batch + 10}}}', f'{{"logOffset":{batch}}}']
    for new, before in ((1, 1), (2, 0)):
        for number in range(2):
            assert made.pop(f"sources/{new}/{number}") == old[f"/old/sources/{before}/{number}"]
    for operator in range(2):
        schema = f"state/{operator}/_stateSchema/default/0_b"
        assert made.pop(schema) == "schema"
        assert f'["/new/{schema}"]' in made.pop(f"state/{operator}/_metadata/v2/{LAST}")
        for part in range(2):
            assert made.pop(f"state/{operator}/{part}/{LAST + 1}_a.zip") == "empty"
            assert made.pop(f"state/{operator}/{part}/{LAST + 1}_a.zip.crc") == "checksum"
    assert not made


def test_a_micro_batch_that_was_planned_and_not_committed_is_planned_again() -> None:
    made = make(MemoryFiles(old_checkpoint(planned=True)), RATES)
    assert made[f"offsets/{LAST + 1}"].endswith(f'\n{{"logOffset":{LAST + 11}}}')
    assert [name for name in made if name.startswith("commits/")] == [f"commits/{LAST}"]


def test_a_checkpoint_that_has_gone_on_since_state_was_carried_over_is_not_continued() -> None:
    files = MemoryFiles(old_checkpoint())
    continuation = Continuation.between(files, "/old", "/new")

    def run_void_batch(location: str) -> Sequence[str]:
        run_by_spark(files, location)
        return [RATES]

    with pytest.raises(StateConflictError, match=f"after micro-batch {LAST - 1} of .* stands at {LAST} by now"):
        continuation.make([0], 4, run_void_batch, None, after={LAST - 1, LAST})
    assert files.content == old_checkpoint()
    continuation.make([0], 4, run_void_batch, None, after={LAST})
    assert continuation.is_made()


def test_a_source_that_the_plan_reads_twice_has_one_offset_twice() -> None:
    files = MemoryFiles(old_checkpoint())
    continuation = Continuation.between(files, "/old", "/new")

    def run_void_batch(location: str) -> Sequence[str]:
        run_by_spark(files, location)
        return [RATES, ORDERS]

    continuation.make([0, 1, 0], 4, run_void_batch, None)
    rates, orders = f'{{"logOffset":{LAST + 10}}}', f'{{"logOffset":{LAST}}}'
    assert files.content[f"/new/offsets/{LAST}"].split("\n")[2:] == [rates, orders, rates]


@pytest.mark.parametrize("moment", ["before", "in the middle", "after"])
def test_whoever_dies_at_any_step_leaves_nothing_that_counts_and_the_next_start_leads_to_the_same_end(
    moment: str,
) -> None:
    undisturbed = MemoryFiles(old_checkpoint())
    expected = make(undisturbed, RATES, ORDERS)
    assert undisturbed.changes > 15
    for fatal in range(1, undisturbed.changes + 1):
        for second in range(1, 5):
            files = MemoryFiles(old_checkpoint(), fatal, moment)
            with pytest.raises(Killed):
                make(files, RATES, ORDERS)
            made = moment == "after" and fatal == undisturbed.changes
            assert Continuation.between(files, "/old", "/new").is_made() is made
            files.fatal, files.changes, files.moment = second, 0, "in the middle"
            with suppress(Killed):
                make(files, RATES, ORDERS)
            files.fatal = 0
            assert make(files, RATES, ORDERS) == expected
            assert not files.exists("/new.millpond-draft")


def anywhere(made: Mapping[str, str], new: str) -> dict[str, str]:
    """Return what a new checkpoint has, wherever it is."""
    return {path: text.replace(f"{new}/", "/new/") for path, text in made.items()}


def test_a_checkpoint_that_is_in_use_is_not_deleted_whatever_lies_beside_it() -> None:
    files = MemoryFiles(old_checkpoint())
    make(files, ORDERS, RATES)
    files.content |= {"/new.millpond-draft/metadata": "", f"/new/commits/{LAST + 1}": "v1\n{}"}
    before = dict(files.content)
    with pytest.raises(ConfigurationError, match=r"/new is in use, but /new.millpond-draft beside it") as refused:
        make(files, ORDERS, RATES)
    assert "delete that directory if the query at the former is sound, or else give into=... another" in str(refused)
    assert files.content == before
    anew = make(files, ORDERS, RATES, new="/another")
    assert anywhere(anew, "/another") == make(MemoryFiles(old_checkpoint()), ORDERS, RATES)
    files.delete("/new.millpond-draft")
    assert make(files, ORDERS, RATES) == {
        path.removeprefix("/new/"): text for path, text in before.items() if path.startswith("/new/")
    }


def put(path: str, text: str) -> Callable[[MemoryFiles], None]:
    return lambda files: files.content.update({path: text})


def delete(path: str) -> Callable[[MemoryFiles], None]:
    return lambda files: files.delete(path)


OFFSETS, COMMIT = (f"/old/{log}/{LAST}" for log in ("offsets", "commits"))


@pytest.mark.parametrize(
    ("spoil", "message", "mend"),
    [
        (delete("/old/metadata"), "there is no checkpoint at /old; give", put("/old/metadata", '{"id":"1837db81"}')),
        (delete(COMMIT), "not committed a micro-batch yet.* let it commit", put(COMMIT, old_checkpoint()[COMMIT])),
        (delete(OFFSETS), f"put the file offsets/{LAST} back", put(OFFSETS, old_checkpoint()[OFFSETS])),
        (delete("/old/sources/1"), "reads one DataFrame twice", None),
        (put("/new/notes.txt", "mine"), "there are files at /new already", delete("/new/notes.txt")),
    ],
    ids=["no-checkpoint", "no-commit", "no-offsets", "read-twice", "taken"],
)
def test_what_cannot_be_continued_is_refused_and_nothing_is_made_until_it_is_mended(
    spoil: Callable[[MemoryFiles], None], message: str, mend: Callable[[MemoryFiles], None] | None
) -> None:
    files = MemoryFiles(old_checkpoint())
    spoil(files)
    before = dict(files.content)
    with pytest.raises(ConfigurationError, match=message):
        make(files, ORDERS, RATES)
    assert files.content == before
    if mend is not None:
        mend(files)
        assert make(files, ORDERS, RATES) == make(MemoryFiles(old_checkpoint()), ORDERS, RATES)


def counts(store: str) -> Plan:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "string"))
    words.group_by_key().count(Materialized(store)).to_stream().to("out")
    return make_plan(builder.build(), None, 1)


def test_a_query_that_has_committed_nothing_starts_anew_although_its_state_was_to_go_on(tmp_path: Path) -> None:
    storage, evolution = Storage.from_uri(tmp_path), Evolution("/old", {"counts": "totals"}, into="/new")
    old, new = counts("counts"), counts("totals")
    History.of(storage, "app", "out").begun(old.fingerprint, shape_of(old))
    held = cast(Checkpoint, SimpleNamespace(location="/old", held=lambda: (None, {}), last=lambda: None))
    generation_at(
        Whereabouts(Standpoint("/old", "/new"), held, in_threads(1)), History.of(storage, "app", "out"), new, evolution
    )
    with pytest.raises(ConfigurationError, match=r"nothing to continue; .* or start anew with a new checkpoint"):
        make(MemoryFiles({"/old/metadata": "", "/old/offsets/0": ""}), ORDERS)
    anew = generation_at(Whereabouts(None, None, in_threads(1)), History.of(storage, "app", "out"), new, None)
    assert (anew.shape, anew.start_of("0_0", None, 0)) == (shape_of(new), None)


@pytest.mark.parametrize(
    ("there", "new", "message"),
    [
        ({"/new/metadata": '{"id":"another"}'}, "/new", "is that of another query; give into=... a place where"),
        ({"/new/notes.txt": "mine"}, "/new", "there are files at /new already; give into=... a place without any"),
        ({}, "/old", "/old cannot be continued at /old; give into=... a new place beside it"),
        ({}, "/old/new", "/old cannot be continued at /old/new; give into=... a new place beside it"),
    ],
    ids=["another-query", "taken", "same", "within"],
)
def test_where_something_is_nothing_is_made_and_another_place_is_taken(
    there: dict[str, str], new: str, message: str
) -> None:
    files = MemoryFiles(old_checkpoint() | there)
    with pytest.raises(ConfigurationError, match=message):
        make(files, ORDERS, RATES, new=new)
    assert files.content == old_checkpoint() | there
    beside = make(files, ORDERS, RATES, new="/old beside")
    assert anywhere(beside, "/old beside") == make(MemoryFiles(old_checkpoint()), ORDERS, RATES)


def test_a_new_checkpoint_is_there_for_the_one_that_it_goes_on_for() -> None:
    """Of another one it is refused."""
    files = MemoryFiles(old_checkpoint() | {"/other/metadata": '{"id":"another"}'})
    made = make(files, ORDERS, RATES)
    with pytest.raises(ConfigurationError, match=r"does not continue /other, .* or give the checkpoint that this one"):
        make(files, ORDERS, RATES, old="/other")
    assert make(files, ORDERS, RATES, old="/old") == made


def test_sources_that_spark_counts_in_another_way_are_refused() -> None:
    files = MemoryFiles(old_checkpoint())
    continuation = Continuation.between(files, "/old", "/new")
    with pytest.raises(DurabilityError, match="but the plan has 2"):
        continuation.make([0, 1], 4, lambda _: [ORDERS], None)
    assert not continuation.is_made()


def test_state_of_another_provider_is_refused_until_spark_writes_that_of_rocksdb() -> None:
    files, expected = MemoryFiles(old_checkpoint()), make(MemoryFiles(old_checkpoint()), ORDERS)

    def with_delta(location: str) -> Sequence[str]:
        run_by_spark(files, location)
        files.content[f"{location}/state/0/0/1.delta"] = ""
        return [ORDERS]

    with pytest.raises(DurabilityError, match=r"1\.delta is no snapshot .*; set up the session with .* run it again"):
        Continuation.between(files, "/old", "/new").make([0], 4, with_delta, None)
    assert make(files, ORDERS) == expected


@pytest.mark.parametrize(("old", "new"), [("a/b", "a/b"), ("a", "a/b"), ("a/b/", "a")])
def test_neither_checkpoint_may_be_within_the_other(old: str, new: str) -> None:
    with pytest.raises(ConfigurationError, match="of which neither is within the other"):
        Continuation.between(MemoryFiles({}), old, new)
    assert Continuation.between(MemoryFiles({}), "a/b", "a/bc").new == "a/bc"


KAFKA = ['{"orders":{"0":23}}', '{"rates":{"0":5,"1":7}}']


def logs(offsets: Sequence[str], first_files: Sequence[str | None]) -> CheckpointLogs:
    return CheckpointLogs("/ck", "", LAST, "", {LAST: OffsetLog({}, offsets)}, first_files)


IN_FILES = logs(['{"logOffset":1}', '{"logOffset":2}'], ["file:///in/orders/a", "file:///in/rates/b%20c/part"])
IN_TOPICS = logs(KAFKA, [None, None])
UNKNOWN = logs(["17", "-"], [None, None])


@pytest.mark.parametrize(
    ("old", "sources", "expected"),
    [
        (IN_FILES, [ORDERS, RATES], [0, 1]),
        (IN_FILES, [RATES, ORDERS], [1, 0]),
        (IN_FILES, [RATES], [1]),
        (IN_FILES, [RETURNS, RATES, ORDERS], [None, 1, 0]),
        (IN_FILES, ["FileStreamSource[file:/in/rat*]", ORDERS], [1, 0]),
        (IN_FILES, ["FileStreamSource[file:/in/rates/b c]", ORDERS], [1, 0]),
        (logs(["-"], ["file:///in/a%2520%23b/part"]), ["FileStreamSource[file:/in/a%20#b]"], [0]),
        (IN_TOPICS, ["KafkaV2[Subscribe[rates]]", "KafkaV2[Subscribe[orders]]", "KafkaV2[Subscribe[x]]"], [1, 0, None]),
    ],
    ids=["same", "swapped", "removed", "added", "glob", "partition", "signs", "topics"],
)
def test_sources_are_known_by_what_they_have_read(
    old: CheckpointLogs, sources: Sequence[str], expected: Sequence[int | None]
) -> None:
    assert origins_of(sources, old, None) == expected


@pytest.mark.parametrize(
    ("old", "sources"),
    [
        (IN_FILES, [ORDERS, RETURNS]),
        (IN_FILES, [ORDERS, "FileStreamSource[file:/in]"]),
        (IN_FILES, [ORDERS, ORDERS]),
        (IN_FILES, ["FileStreamSource[file:/in/order]", RATES]),
        (IN_TOPICS, ["KafkaV2[Subscribe[orders, rates]]"]),
        (UNKNOWN, ["RateStreamV2[rowsPerSecond=1]", "RateStreamV2[rowsPerSecond=2]"]),
        (UNKNOWN, ["KafkaV2[Subscribe[orders]]"]),
    ],
    ids=["moved", "above-both", "twice", "prefix", "joined-topics", "unknown", "another-kind"],
)
def test_where_the_checkpoint_does_not_tell_sources_have_to_be_declared(
    old: CheckpointLogs, sources: Sequence[str]
) -> None:
    with pytest.raises(ConfigurationError, match="declare it by number") as refused:
        origins_of(sources, old, None)
    for number, source in enumerate(sources):
        assert f"\n  {number}: {source}" in str(refused.value)
    assert f"\n  1: at {old.offsets[LAST].offsets[1]}" in str(refused.value)
    declared: dict[int, int | None] = {**dict.fromkeys(range(len(sources))), 0: 1}
    assert origins_of(sources, old, declared) == [1, *[None] * (len(sources) - 1)]


@pytest.mark.parametrize("declared", [{}, {0: 0}, {0: 0, 1: 2}, {0: 0, 1: 0}, {0: 0, 1: 1, 2: None}, {0: -1, 1: 0}])
def test_a_declaration_that_does_not_fit_is_refused(declared: Mapping[int, int | None]) -> None:
    with pytest.raises(ConfigurationError, match="has to name"):
        origins_of([ORDERS, RATES], IN_FILES, declared)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_checkpoint_is_read_whatever_signs_are_in_its_path(form: str, tmp_path: Path) -> None:
    """Spark's reader of state finds none whose path a URI writes in another way."""
    query = filled(tmp_path / "a new #1 50%20")
    checkpoint = Checkpoint(cast(SparkSession, None), form.format(query.checkpoint))
    assert (checkpoint.batches(), checkpoint.last()) == ([0, 1, 2], 2)
    assert len(checkpoint.manifests()) == len(checkpoint.newest()[1]) == PARTITIONS
    assert checkpoint.manifests(1) != checkpoint.manifests(2) == checkpoint.manifests()
    assert checkpoint.foreign_operators() == []
    other = query.checkpoint / "state" / "7" / "_metadata"
    other.mkdir(parents=True)
    (other / "metadata").write_text('v1\n{"operatorInfo":{"operatorId":7,"operatorName":"dedupe"}}')
    assert checkpoint.foreign_operators() == ["7 (dedupe)"]
    nothing = Checkpoint(cast(SparkSession, None), f"{tmp_path}/not here")
    assert nothing.newest() == (None, [])
    with pytest.raises(ConfigurationError, match="there is no checkpoint at"):
        nothing.manifests()
