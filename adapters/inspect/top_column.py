"""The column of the rows that ``top_n`` keeps: of each key, or key and window, a list of structs, by rank.

Rule of this module: rows are shown, and not put: a state has the bytes of their orders as well, which come of an
expression that is nowhere but in the job.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millpond.adapters.inspect.columns import ShownColumn
from millpond.errors import ConfigurationError, EditRefusedError, UnreadableRowError
from millpond.processors.verbs.functions.top import STATE_SERDE
from millpond.processors.verbs.top_n import KeptRows, RankedRows
from millpond.stores.encoding.rows.packing import RowCodec


class TopColumn(ShownColumn):
    """The first rows of keys.

    Args:
        codec: reads the rows.
    """

    def __init__(self, codec: RowCodec) -> None:
        self._rows = KeptRows(RankedRows(codec, codec.schemas.current.names))
        self.type = self._rows.type

    def read(self, data: Sequence[bytes]) -> Any:
        try:
            return self._rows.of_states(STATE_SERDE.columns.read(pa.array(data, pa.binary())).storage)
        except pa.ArrowInvalid as error:
            raise UnreadableRowError(f"some are no states of {STATE_SERDE.name}: {error}") from error

    def parse(self, text: str) -> Any:
        raise _refusal()

    def pack(self, value: Any) -> bytes:
        raise _refusal()


def _refusal() -> ConfigurationError:
    return EditRefusedError(
        "the first rows of a key have orders that are not shown, so they cannot be put; delete the key, and it "
        "begins anew with the rows that come"
    )
