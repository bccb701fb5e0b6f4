"""The topologies of ``java/Witness.java``, by the same names, in Millpond; they read ``left`` and ``right``."""

from collections.abc import Callable
from typing import Any, Final

from millpond.processors import (
    Consumed,
    JoinWindows,
    KStream,
    KTable,
    Produced,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)

TEXT: Final = Consumed("string", "string")
WINDOW: Final = TimeWindows(60, grace=20)


def topology(name: str, produced: Produced | None = None) -> Topology:
    """Return the topology of this name, which writes text to the sink ``out``."""
    builder = StreamsBuilder(key_serde="string", value_serde="string", order="arrival")
    TOPOLOGIES[name](builder).to("out", produced or Produced("string", "string"))
    return builder.build()


def _count(builder: StreamsBuilder) -> KStream:
    return _written(builder.stream("left", TEXT).group_by_key().count().to_stream())


def _windowed_count(builder: StreamsBuilder) -> KStream:
    return _flat(builder.stream("left", TEXT).group_by_key().windowed_by(WINDOW).count())


def _suppress(builder: StreamsBuilder) -> KStream:
    counts = builder.stream("left", TEXT).group_by_key().windowed_by(WINDOW).count()
    return _flat(counts.suppress(Suppressed.until_window_closes()))


def _session(builder: StreamsBuilder) -> KStream:
    return _flat(builder.stream("left", TEXT).group_by_key().windowed_by(SessionWindows(15, grace=30)).count())


def _stream_stream(builder: StreamsBuilder) -> KStream:
    left, right = builder.stream("left", TEXT), builder.stream("right", TEXT)
    return left.left_join(right, concat, windows=JoinWindows.of(12, grace=6))


def _stream_table(builder: StreamsBuilder) -> KStream:
    return builder.stream("left", TEXT).join(builder.table("right", TEXT), concat)


def _table_table(builder: StreamsBuilder) -> KStream:
    return builder.table("left", TEXT).outer_join(builder.table("right", TEXT), concat).to_stream()


def _foreign_key(builder: StreamsBuilder) -> KStream:
    left, right = builder.table("left", TEXT), builder.table("right", TEXT)
    return left.join(right, concat, foreign_key=lambda value: value[:1]).to_stream()


def concat(left: str | None, right: str | None) -> str:
    """Join two sides as Java joins strings."""
    return "-".join("null" if side is None else side for side in (left, right))


def _flat(counts: KTable) -> KStream:
    named = counts.to_stream().select_key(lambda key, _: f"{key.key}@{key.start}/{key.end}", key_serde="string")
    return _written(named)


def _written(counts: KStream) -> KStream:
    return counts.map_values(_text, value_serde="string")


def _text(count: Any) -> str | None:
    return None if count is None else str(count)


TOPOLOGIES: Final[dict[str, Callable[[StreamsBuilder], KStream]]] = {
    "count": _count,
    "windowed-count": _windowed_count,
    "suppress": _suppress,
    "session": _session,
    "stream-stream": _stream_stream,
    "stream-table": _stream_table,
    "table-table": _table_table,
    "foreign-key": _foreign_key,
}
