from millpond_sqlite import SqliteSupplier

from millpond.stores.backend import BackendSupplier
from millpond.stores.testing import BackendSuite


class TestSqlite(BackendSuite):
    def supplier(self) -> BackendSupplier:
        return SqliteSupplier()
