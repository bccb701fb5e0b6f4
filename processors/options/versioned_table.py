"""``VersionedTable``: a table that others keep in files, as a look-up reads it.

Rule of this module: it says what such a table must do, and knows no format.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa


@runtime_checkable
class VersionedTable(Protocol):
    """A table that is read by version. It is pickled, and read in each worker.

    A version consists of parts, such as files. A part never changes, so what has been read of it is read once: the next
    version is read by the parts that are new in it.
    """

    def schema(self) -> pa.Schema:
        """Return the columns that the table has now.

        Raises:
            ConfigurationError: there is no such table, or its format has something that cannot be read.
        """

    def version(self) -> str:
        """Return the newest version, as text by which it is found again as long as the table keeps it."""

    def parts(self, version: str) -> Sequence[str]:
        """Return the parts of a version: texts that each name one part for good, without repetition."""

    def read(self, part: str, columns: Sequence[str]) -> pa.Table:
        """Return columns of the rows of a part. A column that it lacks may be left out, and is null then.

        Raises:
            MissingFileError: the table does not keep the part any more.
        """
