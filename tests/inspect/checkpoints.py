"""Checkpoints in the forms that Spark has for them, written without Spark, and durable state for them to name."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from struct import pack
from typing import Any
from zipfile import ZipFile

import rocksdict
from xxhash import xxh32_intdigest

from millpond.adapters.inspect import StateInspector
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Manifest, Storage, TaskState
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.evolution.history import History
from millpond.stores.evolution.record import EvolutionRecord
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

PARTITIONS = 2
FINGERPRINT = f"9f/{PARTITIONS}"
FAMILY = 2

SPECS = {
    spec.name: spec
    for spec in (
        StoreSpec("plain", StoreKind.KEY_VALUE, STRING, INT64),
        StoreSpec("times", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64),
        StoreSpec("versions", StoreKind.VERSIONED, STRING, INT64, history_retention=1000),
        StoreSpec("windows", StoreKind.WINDOW, STRING, INT64, retention=1000, window_size=10),
        StoreSpec("stamped-windows", StoreKind.TIMESTAMPED_WINDOW, STRING, INT64, retention=1000, window_size=10),
        StoreSpec("sessions", StoreKind.SESSION, STRING, INT64, retention=1000),
    )
}


def lz4(data: bytes) -> bytes:
    """Return data as lz4-java's stream has it, in one block that is not packed, and an empty one."""
    head = b"LZ4Block\x10" + pack("<ii", len(data), len(data))
    return head + pack("<I", xxh32_intdigest(data, 0x9747B28C) & 0xFFFFFFF) + data + b"LZ4Block\x10" + bytes(12)


def state_key(task: int) -> bytes:
    """Return the key of a task in Spark's state."""
    return pack("<HbQQ", FAMILY, 0, 0, task)


def state_value(manifest: Manifest) -> bytes:
    """Return the value of a task in Spark's state."""
    text = manifest.to_json().encode()
    return pack("<bQqII", 0, 0, 1, len(text), 24) + text + bytes(-len(text) % 8)


def changelog(changes: Mapping[bytes, bytes | None], lineage: Any = None) -> bytes:
    """Return a changelog as Spark writes it, not yet compressed."""
    head = "v2" if lineage is None else "v4"
    texts = [head, *([] if lineage is None else [json.dumps(lineage)])]
    parts = [pack(">H", len(text)) + text.encode() for text in texts]
    for key, value in changes.items():
        if value is None:
            parts.append(b"\x10" + pack(">i", len(key)) + key + pack(">i", -1))
        else:
            parts.append(b"\x01" + pack(">i", len(key)) + key + pack(">i", len(value)) + value)
    return b"".join([*parts, b"\x00"])


def write_snapshot(directory: Path, name: str, rows: Mapping[bytes, bytes], work: Path) -> None:
    """Write a snapshot as Spark does: a zip file, and the tables beside it."""
    engine = rocksdict.Rdict(str(work), rocksdict.Options(raw_mode=True))
    for key, value in rows.items():
        engine[key] = value
    engine.flush()
    engine.close()
    (directory / "SSTs").mkdir(parents=True, exist_ok=True)
    tables = []
    with ZipFile(directory / f"{name}.zip", "w") as archive:
        for path in work.iterdir():
            if path.suffix == ".sst":
                content = path.read_bytes()
                (directory / "SSTs" / f"{path.stem}-{name}.sst").write_bytes(content)
                table = {"localFileName": path.name, "dfsSstFileName": f"{path.stem}-{name}.sst"}
                tables.append({**table, "sizeBytes": len(content)})
            elif path.name.startswith(("CURRENT", "MANIFEST")):
                archive.write(path, path.name)
        families = {"default": 1, "manifest": FAMILY}
        metadata = {"sstFiles": tables, "logFiles": [], "columnFamilyMapping": families}
        archive.writestr("metadata", "v1\n" + json.dumps(metadata))


class Query:
    """A query of two tasks with durable state, and its checkpoint, as Spark would have it after each micro-batch.

    Args:
        directory: where everything is.
        specs: its stores.
        snapshots: the micro-batches after which Spark's state is kept in snapshots; else it is in changelogs.
    """

    def __init__(
        self,
        directory: Path,
        specs: Collection[StoreSpec] = tuple(SPECS.values()),
        snapshots: Collection[int] = (),
        application_id: str = "app",
        sink: str = "out",
    ) -> None:
        self.directory = directory
        self.checkpoint, self.state = directory / "checkpoint", directory / "state"
        self.storage = Storage.from_uri(self.state)
        self.specs = {spec.name: spec for spec in specs}
        self._snapshots = snapshots
        self._application_id, self._sink = application_id, sink
        self._manifests: dict[int, Manifest] = {}
        self.batch = -1
        shape = Shape(PARTITIONS, tuple(map(_shape, specs)))
        History.of(self.storage, application_id, sink).begun(FINGERPRINT, shape)
        self._write("metadata", '{"id":"3f"}')
        self._write("state/0/_metadata/v2/0", f"v2\n{json.dumps(OPERATOR)}")

    def run(self, change: Any, record: EvolutionRecord | None = None) -> None:
        """Run a micro-batch: ``change(stores, mine)`` changes a task's stores; ``mine(key)`` tells which keys are its.

        ``record`` is that of the generation with which the query runs since its start; None for a query that starts.
        """
        self.batch += 1
        changed = {}
        record = record or History.of(self.storage, self._application_id, self._sink).newest
        assert record is not None
        for number in range(PARTITIONS):
            options: dict[str, Any] = {"task_id": f"0_{number}", "local_dir": self.directory / "local"}
            options |= {"application_id": self._application_id, "fingerprint": record.fingerprint}
            specs = list(self.specs.values())
            with TaskState(specs, supplier("memory"), storage=self.storage, **options) as state:
                stores = state.open(record.start_of(f"0_{number}", self._manifests.get(number), self.batch))

                def mine(key: str, number: int = number) -> bool:
                    return partition_of(key.encode(), PARTITIONS) == number

                change(stores, mine)
                changed[number] = self._manifests[number] = state.commit()
        self._keep(changed)

    def _keep(self, changed: Mapping[int, Manifest]) -> None:
        name = str(self.batch + 1)
        for number, manifest in changed.items():
            directory = self.checkpoint / "state" / "0" / str(number)
            rows = {state_key(number): state_value(manifest)}
            directory.mkdir(parents=True, exist_ok=True)
            if self.batch in self._snapshots:
                write_snapshot(directory, name, rows, self.directory / f"rocksdb-{number}-{name}")
            else:
                (directory / f"{name}.changelog").write_bytes(lz4(changelog(rows)))
        self.commit(self.batch)

    def commit(self, batch: int, settings: Mapping[str, str] | None = None, ids: Any = None) -> None:
        """Write what Spark says of a micro-batch."""
        self._write(f"offsets/{batch}", f"v1\n{json.dumps({'conf': dict(settings or {})})}\n{{}}")
        self._write(f"commits/{batch}", f"v1\n{json.dumps({} if ids is None else {'stateUniqueIds': ids})}")

    def _write(self, path: str, text: str) -> None:
        place = self.checkpoint / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    @property
    def manifests(self) -> Sequence[Manifest]:
        """Return the manifests after the last micro-batch."""
        return list(self._manifests.values())

    def inspector(self, **options: Any) -> StateInspector:
        return StateInspector.at(str(self.checkpoint), str(self.state), **options)


OPERATOR = {
    "operatorInfo": {"operatorId": 0, "operatorName": "transformWithStateInPandasExec"},
    "stateStoreInfo": [{"storeName": "default", "numPartitions": PARTITIONS}],
    "operatorPropertiesJson": json.dumps({"stateVariables": [{"stateName": "manifest"}]}),
}


def _shape(spec: StoreSpec) -> StoreShape:
    key, value = spec.key_serde.name, spec.value_serde.name
    return StoreShape(0, spec.name, spec.kind, key, value, spec.layout, key)
