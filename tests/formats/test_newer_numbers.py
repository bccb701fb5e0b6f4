"""An older release beside newer state: whatever has a number is refused with the next one, and nothing is changed.

For each kind of thing a case writes what a release to come would write, one number higher, and reads it with this one.
Beside a refusal there may be signs of life, a lease and a pin; all else is byte for byte what it was.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from millpond.adapters.inspect.checkpoint.kept_manifest import kept_manifests
from millpond.errors import FormatError, MillpondError, SerdeError
from millpond.processors.runtime.change import Change, ChangeSerde
from millpond.processors.runtime.kept_time import STREAM_TIME, KeptTime
from millpond.processors.tables.foreign_key.messages import Content, Instruction, Response, Subscription
from millpond.processors.verbs.encoding.foreign_keyed import with_foreign_keys, without_foreign_key
from millpond.releases import OLDEST_READERS, RELEASE, Numbered, Release
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState, claim
from millpond.stores.durability.copies.clean_shutdown import seal_path
from millpond.stores.durability.manifests.base import Base
from millpond.stores.durability.manifests.schema_log import kept_schemas
from millpond.stores.durability.parquet.files import FORMAT_KEY, PART_KEY, READER_KEY, WRITER_KEY
from millpond.stores.durability.storage.checked_text import checked_text
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.evolution.history import History
from millpond.stores.evolution.shape import Shape
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.layouts import Layout
from millpond.stores.typed.terms import Terms
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp
from tests.durability.keeping_schemas import evolve_schemas

Opening: TypeAlias = Callable[[], object]

LAYOUT: Final = Layout("unpaired-records", 1)
TIMES: Final = StoreSpec("times", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64)
PRINT: Final = "topology/1"
COLUMNS: Final = pa.schema([]).append(pa.field("rate", pa.string()))
APPLICATION: Final = "app"
OF_RELEASE_9: Final = {"written_by": "9.1.0", "oldest_reader": "9.0.0"}
ROWS: Final = [("a", ValueAndTimestamp(1, 1))]
SIGNS_OF_LIFE: Final = ("lease", ".pin")


def task(directory: Path, spec: StoreSpec = TIMES, local: str = "local", engine: str = "lmdb") -> TaskState:
    return TaskState(
        [spec],
        supplier(engine),
        application_id=APPLICATION,
        task_id="0_0",
        local_dir=directory / local,
        storage=storage_of(directory),
        fingerprint=PRINT,
        policy=DurabilityPolicy(),
    )


def storage_of(directory: Path) -> Storage:
    return Storage.from_uri(directory / "state")


def committed(directory: Path, spec: StoreSpec = TIMES, **options: Any) -> Manifest:
    """Return the manifest of a task with one row."""
    with task(directory, spec, **options) as state:
        store: Any = state.open(None)[spec.name]
        store.put("a", 1, 1)
        return state.commit()


def reopened(directory: Path, manifest: Manifest, spec: StoreSpec = TIMES, **options: Any) -> Opening:
    def opening() -> None:
        with task(directory, spec, **options) as state:
            store: Any = state.open(manifest)[spec.name]
            assert list(store.scan()) == ROWS

    return opening


def giving(right: object, read: Opening) -> Opening:
    def opening() -> None:
        assert read() == right

    return opening


def raised(text: str, field: str) -> str:
    """Return a text with checksum whose number of that name is one higher, in itself or in the shape that it holds."""
    content = json.loads(text)
    del content["crc32"]
    place = content if isinstance(content[field], int) else content[field]
    place[field] += 1
    return checked_text(content)


def directory_of_a_store(directory: Path, engine: str) -> Opening:
    manifest = committed(directory, engine=engine)
    there = directory / "local" / APPLICATION / "0_0" / engine / TIMES.directory_name
    for path, name in ((there, "times-v{}"), (seal_path(there), ".times-v{}.seal")):
        path.rename(path.with_name(name.format(max(FormatVersion) + 1)))
    return reopened(directory, manifest, engine=engine)


def layout(directory: Path) -> Opening:
    newer = committed(directory, replace(TIMES, layout=replace(LAYOUT, version=2)))
    return reopened(directory, newer, replace(TIMES, layout=LAYOUT), local="elsewhere", engine="memory")


class NewerTerms(Terms):
    """Terms as a later release will keep them."""

    def to_bytes(self) -> bytes:
        return super().to_bytes().replace(b'"terms":1', b'"terms":2')


def terms(directory: Path) -> Opening:
    newer = committed(directory, replace(TIMES, terms=NewerTerms((("size", 10),))))
    spec = replace(TIMES, terms=Terms((("size", 10),)))
    return reopened(directory, newer, spec, local="elsewhere", engine="memory")


def kept_time(directory: Path) -> Opening:
    with task(directory) as state:
        store: Any = state.open(None)["times"]
        KeptTime(store, STREAM_TIME).put(17)
        data = store.get_metadata(STREAM_TIME)
        store.keep_metadata(STREAM_TIME, bytes([data[0] + 1]) + data[1:])
        manifest = state.commit()

    def opening() -> None:
        with task(directory, local="elsewhere", engine="memory") as state:
            assert KeptTime(state.open(manifest)["times"], STREAM_TIME).get() == 17

    return opening


def changed_file(directory: Path, changes: Mapping[bytes, bytes]) -> Manifest:
    """Return the manifest of a task whose file has other metadata, as if it had been written so."""
    manifest = committed(directory)
    (file,) = manifest.files
    path = Path(storage_of(directory).describe(manifest.path(file)))
    rows, known = pq.read_table(path), pq.read_metadata(path).metadata or {}
    kept = {key: value for key, value in known.items() if key.startswith(b"millpond")}
    pq.write_table(rows.replace_schema_metadata(kept | dict(changes)), path)
    written = path.read_bytes()
    footer = written[-8 - int.from_bytes(written[-8:-4], "little") :]
    return manifest.with_snapshot(file._replace(size=len(written), checksum=crc32(footer)), ())


def durable_file(directory: Path, changes: Mapping[bytes, bytes]) -> Opening:
    return reopened(directory, changed_file(directory, changes), local="elsewhere", engine="memory")


def manifest_text(directory: Path) -> Opening:
    manifest = replace(committed(directory), bases=(Base(1, 2),))
    content = json.loads(raised(manifest.to_json(), "millpond"))
    del content["crc32"]
    return giving(manifest, partial(Manifest.from_json, checked_text(content | OF_RELEASE_9)))


def manifest_reader(directory: Path) -> Opening:
    manifest = committed(directory)
    content = json.loads(manifest.to_json())
    del content["crc32"]
    return giving(manifest, partial(Manifest.from_json, checked_text(content | OF_RELEASE_9)))


def record(directory: Path, field: str) -> Opening:
    storage = storage_of(directory)
    History.of(storage, APPLICATION, "out").begun(PRINT, Shape(1, ()), frozenset(["seeded"]), backfill="b" * 32)
    path = f"{APPLICATION}/evolution/out/000000.json"
    storage.put(path, raised(storage.read(path).decode(), field).encode())
    return giving("b" * 32, lambda: History.of(storage, APPLICATION, "out").records[0].backfill)


def claimed(directory: Path, opening: Callable[[Storage], object]) -> Opening:
    committed(directory)
    storage = storage_of(directory)
    storage.put(f"{APPLICATION}/topology-evolved-2", b"as a later release will say it")
    return giving(None, partial(opening, storage))


def schemas(directory: Path) -> Opening:
    committed(directory)
    storage = storage_of(directory)
    right = evolve_schemas(storage, APPLICATION, "right", COLUMNS)
    path = f"{APPLICATION}/right-schema-1.json"
    text = json.loads(storage.read(path))["schemas"]
    later = json.dumps(text | {"format": text["format"] + 1}).encode()
    storage.put(path, b'{"crc32":%d,"schemas":%b}' % (crc32(later), later))
    return giving(right, partial(kept_schemas, storage, APPLICATION, "right"))


def subscription(_: Path) -> Opening:
    sent = Subscription(None, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE, b"key", 0)
    data = sent.to_bytes()
    return giving(sent, partial(Subscription.from_bytes, bytes([data[0] + 1]) + data[1:]))


def response(_: Path) -> Opening:
    sent = Response(None, Content.VALUE, b"value")
    data = sent.to_bytes()
    return giving(sent, partial(Response.from_bytes, bytes([data[0] + 1]) + data[1:]))


def row_with_a_foreign_key(_: Path) -> Opening:
    columns = pa.table({"p": ["p"]})
    (value,) = with_foreign_keys(KeyCodec(columns.schema), columns, pa.array([b"row"])).to_pylist()
    return giving(b"row", partial(without_foreign_key, bytes([value[0] + 1]) + value[1:]))


def change(_: Path) -> Opening:
    serde = ChangeSerde(STRING)
    sent = Change("new", "old")
    return giving(sent, partial(serde.deserialize, serde.serialize(sent)[:-1] + b"\x06"))


def value_in_sparks_state(directory: Path) -> Opening:
    return partial(kept_manifests, 3, committed(directory).to_json())


class Case(NamedTuple):
    """Something with a number.

    Attributes:
        what: what it is.
        newer: writes it with the next number, and gives what reads it.
        message: what the error says.
        error: which one it is.
        known_there: what stands in for the release that wrote it: numbers of this one, by where they are, as that one
            has them.
    """

    what: Numbered | None
    newer: Callable[[Path], Opening]
    message: str
    error: type[MillpondError] = FormatError
    known_there: Mapping[str, object] = MappingProxyType({})


IN_STORES: Final = "millpond.stores"
IN_JOINS: Final = "millpond.processors.tables.foreign_key.messages"
RELEASE_9: Final = {"millpond.releases.THIS_RELEASE": Release(9, 0)}
CLAIMED: Final = {f"{IN_STORES}.durability.manifests.claim._FENCE": "topology-evolved-2"}
RELEASES: Final = (
    rf"was written by release 9\.1\.0 .* release 9\.0\.0 or a newer one, but this is release {RELEASE}; run"
)
CASES: Final = {
    "directory, lmdb": Case(
        Numbered.DIRECTORY, partial(directory_of_a_store, engine="lmdb"), r"times-v7 is in a format version .* use the"
    ),
    "directory, rocksdb": Case(
        Numbered.DIRECTORY, partial(directory_of_a_store, engine="rocksdb"), r"times-v7 is in a format version .* use"
    ),
    "layout": Case(Numbered.LAYOUT, layout, "version 2, but this release reads .* in version 1; run the release that"),
    "terms": Case(
        Numbered.TERMS,
        terms,
        "of store 'times', the terms have version 2, but .* knows version 1; run the",
        known_there={f"{IN_STORES}.typed.terms.TERMS_VERSION": 2},
    ),
    "kept time": Case(
        Numbered.KEPT_TIME,
        kept_time,
        "in version 2, but this release reads version 1; run the release",
        known_there={"millpond.processors.runtime.kept_time._VERSION": 2},
    ),
    "durable file": Case(
        Numbered.DURABLE_FILE,
        partial(durable_file, changes={FORMAT_KEY: b"4", PART_KEY: b"1"}),
        r"parquet has format 4, but this release of Millpond knows formats 1 to 3; run the release that wrote it",
        known_there={f"{IN_STORES}.durability.parquet.reading.{name}": 4 for name in ("PAGE_CHECKSUMS", "WITH_A_PART")},
    ),
    "reader of a file": Case(
        Numbered.DURABLE_FILE,
        partial(durable_file, changes={FORMAT_KEY: b"1", WRITER_KEY: b"9.1.0", READER_KEY: b"9.0.0"}),
        RELEASES,
        known_there=RELEASE_9,
    ),
    "manifest": Case(
        Numbered.MANIFEST,
        manifest_text,
        "version 5, but this release of Millpond knows versions 1 to 4; run release 9.0.0 or a newer one",
        known_there={
            f"{IN_STORES}.durability.manifests.manifest.PARTS_VERSION": 5,
            "millpond.releases.OLDEST_READERS": {**OLDEST_READERS, Numbered.MANIFEST: {5: Release(9, 0)}},
        }
        | RELEASE_9,
    ),
    "reader of a manifest": Case(Numbered.MANIFEST, manifest_reader, RELEASES, known_there=RELEASE_9),
    "evolution record": Case(
        Numbered.EVOLUTION_RECORD,
        partial(record, field="evolution"),
        "version 4, but .* knows versions 1 to 3; run the",
        known_there={f"{IN_STORES}.evolution.record._KNOWN": range(1, 5)},
    ),
    "shape": Case(
        Numbered.SHAPE,
        partial(record, field="shape"),
        "shape of state has version 2, but .* version 1; run",
        known_there={f"{IN_STORES}.evolution.shape.SHAPE_VERSION": 2},
    ),
    "claim, in a worker": Case(
        None,
        partial(claimed, opening=lambda storage: claim(storage, APPLICATION, PRINT)),
        "-evolved-2 is a claim",
        known_there=CLAIMED,
    ),
    "claim, in the driver": Case(
        None,
        partial(claimed, opening=lambda storage: History.of(storage, APPLICATION, "out").newest),
        "-2 is a claim",
        known_there=CLAIMED,
    ),
    "schemas": Case(
        Numbered.SCHEMAS,
        schemas,
        "in the format 2, but this release reads 1; run the release that wrote",
        known_there={f"{IN_STORES}.encoding.rows.schema_json.SCHEMA_FORMAT": 2},
    ),
    "subscription": Case(
        Numbered.SUBSCRIPTION,
        subscription,
        "a subscription has version 2, but this release reads versions 0 to 1; run the release that wrote it",
        SerdeError,
        {f"{IN_JOINS}._NEWEST_SUBSCRIPTION": 2},
    ),
    "response": Case(
        Numbered.RESPONSE,
        response,
        "a response has version 2, but this release reads version 1; run the release that wrote it",
        SerdeError,
        {f"{IN_JOINS}.RESPONSE_VERSION": 2},
    ),
    "change": Case(
        Numbered.CHANGE,
        change,
        "the flag 6, which this release does not know; run the release that wrote it",
        SerdeError,
        {"millpond.processors.runtime.change._BOTH": b"\x06"},
    ),
    "row with a foreign key": Case(
        None,
        row_with_a_foreign_key,
        "of version 2, but this release knows only 1; run the release that wrote it",
        known_there={"millpond.processors.verbs.encoding.foreign_keyed.FOREIGN": b"\x02"},
    ),
    "value in Spark's state": Case(
        Numbered.STATE_VALUE, value_in_sparks_state, "value of version 3, but this release .* versions 1 and 2; run"
    ),
}


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@contextmanager
def unchanged(directory: Path) -> Iterator[None]:
    """Check that nothing that is there changes or goes meanwhile, and nothing comes but signs of life."""
    before = files_below(directory)
    yield
    after = files_below(directory)
    assert {path for path in before if after.get(path) != before[path] and not path.endswith(SIGNS_OF_LIFE)} == set()
    assert [path for path in after if path not in before and not path.endswith(SIGNS_OF_LIFE)] == []


def test_everything_that_has_a_number_has_a_case() -> None:
    assert {case.what for case in CASES.values()} == {*Numbered, None}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_next_number_is_refused_and_nothing_is_changed(case: Case, tmp_path: Path) -> None:
    opening = case.newer(tmp_path)
    with unchanged(tmp_path), pytest.raises(case.error, match=case.message):
        opening()


@pytest.mark.parametrize("what", [what for what, case in CASES.items() if case.known_there])
def test_the_release_that_wrote_it_reads_what_this_one_has_refused(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[what]
    opening = case.newer(tmp_path)
    with pytest.raises(case.error, match=r"run (the )?release"):
        opening()
    for where, number in case.known_there.items():
        monkeypatch.setattr(where, number)
    opening()


@pytest.mark.parametrize("engine", ["lmdb", "rocksdb"])
def test_a_copy_in_a_directory_of_a_later_version_is_restored_once_it_is_deleted(tmp_path: Path, engine: str) -> None:
    opening = directory_of_a_store(tmp_path, engine)
    with pytest.raises(FormatError, match="delete the directory if it is a copy of durable state") as refused:
        opening()
    rmtree(str(refused.value).partition(" is in a format")[0])
    opening()


PAGE: Final = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text()


def read_since(what: Numbered) -> str:
    """Return what the page's table says of the releases that read something."""
    readers = OLDEST_READERS[what]
    numbers = {release: [number for number in readers if readers[number] == release] for release in readers.values()}
    return "; ".join(f"{release}: {', '.join(map(str, found))}" for release, found in sorted(numbers.items()))


@pytest.mark.parametrize("what", Numbered, ids=str)
def test_the_page_says_which_release_is_the_first_to_read_each_number(what: Numbered) -> None:
    table = PAGE.partition("## All numbers")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    found = {row[-1].strip() for row in rows if re.match(rf"\W*{re.escape(what)}\b", row[0], re.IGNORECASE)}
    assert found == {read_since(what)}
