"""Durable state moved from one backend to another: written on LMDB, read and continued on RocksDB.

What lasts are Parquet files, the same for every backend, and a manifest that names them. A driver keeps the manifest;
here it is a variable, on Spark it lies in Spark's own state.

It prints::

    on lmdb: {'flour': 1, 'grain': 2}
    on rocksdb: {'bran': 3, 'flour': 1, 'grain': 5}
    on lmdb again: {'bran': 3, 'flour': 1, 'grain': 5}
"""

import tempfile
from pathlib import Path
from typing import Any

from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Manifest, Storage, TaskState
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

STOCK = StoreSpec("stock", StoreKind.KEY_VALUE, STRING, INT64)


def batch(
    place: Path, backend: str, manifest: Manifest | None, puts: dict[str, int]
) -> tuple[Manifest, dict[str, Any]]:
    """Open the task's state at ``manifest``, change it, and commit; the new manifest and what the store then holds."""
    with TaskState(
        [STOCK],
        supplier(backend),
        application_id="mill",
        task_id="0_0",
        local_dir=place / "local",
        storage=Storage.from_uri(place / "state"),
    ) as state:
        stock: Any = state.open(manifest)["stock"]
        for key, value in puts.items():
            stock.put(key, value)
        content = dict(stock.scan())
        return state.commit(), content


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        manifest, content = batch(place, "lmdb", None, {"grain": 2, "flour": 1})
        print(f"on lmdb: {content}")
        manifest, content = batch(place, "rocksdb", manifest, {"grain": 5, "bran": 3})
        print(f"on rocksdb: {content}")
        manifest, content = batch(place, "lmdb", manifest, {})
        print(f"on lmdb again: {content}")


if __name__ == "__main__":
    main()
