"""A store on its own, without any stream: a versioned store on LMDB, read as of any time in its history.

It prints::

    now: 2.0
    as of 4000: 1.5
    the price of 3000 held until 5000
    from 1000: 1.0
    from 3000: 1.5
    from 5000: 2.0
    after a rollback: 2.0
"""

import tempfile
from pathlib import Path

from millpond.stores.backend.registry import open_backend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import FLOAT64, STRING
from millpond.stores.typed.versions.versioned import VersionedKeyValueStore


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, open_backend("lmdb", Path(directory)) as backend:
        transaction = Transaction(backend)
        prices = VersionedKeyValueStore("prices", transaction, STRING, FLOAT64, history_retention=3_600_000)
        prices.put("apple", 1.0, 1_000)
        prices.put("apple", 2.0, 5_000)
        valid_to = prices.put("apple", 1.5, 3_000)  # out of order: it ends where the next version begins
        prices.flush()
        transaction.commit()

        print(f"now: {prices.get_value('apple')}")
        print(f"as of 4000: {prices.get_value('apple', as_of=4_000)}")
        print(f"the price of 3000 held until {valid_to}")
        for version in prices.history("apple"):
            print(f"from {version.timestamp}: {version.value}")

        prices.put("apple", 9.0, 6_000)
        transaction.rollback()
        print(f"after a rollback: {prices.get_value('apple')}")


if __name__ == "__main__":
    main()
