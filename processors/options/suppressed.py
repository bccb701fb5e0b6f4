"""``Suppressed``: how long a table's updates are held back, and what happens when too many are (KIP-328)."""

from dataclasses import dataclass
from typing import Self

from millpond.errors import TopologyError
from millpond.stores.times import Duration, to_millis


@dataclass(frozen=True)
class Suppressed:
    """What ``KTable.suppress`` holds back, made by one of the two class methods.

    >>> from millpond.processors import StreamsBuilder, TopologyDriver
    >>> builder = StreamsBuilder()
    >>> builder.table("prices").suppress(Suppressed.until_time_limit(10)).to("calm")
    >>> with TopologyDriver(builder.build()) as driver:
    ...     driver.pipe_all("prices", [("a", 1, 100), ("a", 2, 105), ("b", 7, 110)])
    ...     driver.read("calm")
    [Record(key='a', value=2, timestamp=105)]

    Attributes:
        wait: how long after a key's first held update, in milliseconds; None until its window closes.
        max_records, max_bytes: the bounds of the buffer; None where there is none. The bytes are those of keys and
            values, and 28 and the length of the topic's name for each update.
        emit_early: whether a full buffer emits its oldest updates before their time; otherwise it is an error.
        name: the node's name, and with ``-store`` behind it that of the buffer's store.
    """

    wait: int | None
    max_records: int | None = None
    max_bytes: int | None = None
    emit_early: bool = True
    name: str | None = None

    def __post_init__(self) -> None:
        for what in ("wait", "max_records", "max_bytes"):
            value = getattr(self, what)
            if value is not None and value < 0:
                raise TopologyError(f"Suppressed: {what} is {value}; give a number that is not negative")

    @classmethod
    def until_time_limit(
        cls,
        wait: Duration,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        emit_early: bool = True,
        name: str | None = None,
    ) -> Self:
        """Hold a key's updates for ``wait`` of stream time after the first, then emit the last of them."""
        return cls(to_millis(wait, "wait"), max_records, max_bytes, emit_early, name)

    @classmethod
    def until_window_closes(
        cls, *, max_records: int | None = None, max_bytes: int | None = None, name: str | None = None
    ) -> Self:
        """Emit each window's result once, when it is final. A full buffer is an error: nothing in it is final."""
        return cls(None, max_records, max_bytes, False, name)
