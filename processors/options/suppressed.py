"""``Suppressed``: the time for which a table's updates are held back, and the policy for too many (KIP-328)."""

from dataclasses import dataclass
from typing import Self

from millpond.errors import TopologyError
from millpond.stores.encoding.times import Duration, to_millis


@dataclass(frozen=True)
class Suppressed:
    """The updates that ``KTable.suppress`` holds back; made by one of the two class methods.

    >>> from millpond.processors import StreamsBuilder, TopologyDriver
    >>> builder = StreamsBuilder()
    >>> builder.table("prices").suppress(Suppressed.until_time_limit(10)).to("calm")
    >>> with TopologyDriver(builder.build()) as driver:
    ...     driver.pipe_all("prices", [("a", 1, 100), ("a", 2, 105), ("b", 7, 110)])
    ...     driver.read("calm")
    [Record(key='a', value=2, timestamp=105)]

    Attributes:
        wait: how long a key's updates are held, in milliseconds of stream time after the first; None to hold them until
            the key's window closes.
        max_records, max_bytes: the bounds of the buffer; None for no bound. An update counts as the bytes of its key
            and values, plus 28 and the length of its topic's name.
        emit_early: whether a full buffer emits its oldest updates early; otherwise it raises ``BufferFullError``.
        name: the node's name; the buffer's store is called ``<name>-store``.

    Raises:
        TopologyError: a number is negative.
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
        return cls(to_millis(wait, "wait of Suppressed"), max_records, max_bytes, emit_early, name)

    @classmethod
    def until_window_closes(
        cls, *, max_records: int | None = None, max_bytes: int | None = None, name: str | None = None
    ) -> Self:
        """Emit each window's result once, when it is final. A full buffer is an error: nothing in it is final yet."""
        return cls(None, max_records, max_bytes, False, name)
