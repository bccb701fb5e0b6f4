"""Millpond's state stores on SlateDB: the rows are in an object store, a directory has only the name of its store."""

from millpond_slatedb.supplier import SlateDbSupplier

__all__ = ["SlateDbSupplier"]
