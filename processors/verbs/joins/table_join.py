"""``table_join``: two change feeds joined, by key (KIP-77) or by foreign key (KIP-213); a change feed comes out."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa

from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.dsl.streams_and_tables import KStream, KTable
from millpond.processors.options.joins import JoinType, Side
from millpond.processors.options.materialized import Materialized
from millpond.processors.verbs.encoding.foreign_keyed import foreign_keys_of
from millpond.processors.verbs.joins.joined_keys import JoinedKeys, LeftResults, RightResults
from millpond.processors.verbs.joins.table_match import TableMatching
from millpond.processors.verbs.projections import CHANGE_TIME, ChangeColumns, JoinedRows, Keys, Rows, Times, pairs
from millpond.processors.verbs.sequenced import sequenced_table, table_of
from millpond.processors.verbs.verb import PackedRows, Verb, null_safety
from millpond.stores.encoding.column_serdes import Array, ColumnarSerde, ColumnSerde
from millpond.stores.encoding.rows.row_columns import PhysicalRowType, RowColumnSerde
from millpond.stores.encoding.serdes import BYTES, MSGPACK
from millpond.stores.typed.expiry import Expired

_COLUMNS: Final = RowColumnSerde(pa.struct([("left", pa.binary()), ("right", pa.binary())]))


class PairSerde(ColumnarSerde[Sequence[bytes | None]]):
    """A left row and a right one, or None if there is none: an array of two, in the bytes of ``MSGPACK``."""

    name = MSGPACK.name

    @property
    def columns(self) -> ColumnSerde:
        return _COLUMNS

    def serialize(self, value: Sequence[bytes | None]) -> bytes:
        return MSGPACK.serialize(value)

    def deserialize(self, data: bytes) -> Any:
        return MSGPACK.deserialize(data)


PAIRS: Final = PairSerde()


def kept_pairs(left: Array, right: Array) -> Array:
    """Return the pairs of columns of rows, as the join keeps them."""
    return PhysicalRowType.of(pairs(left, right))


def are_complete(keys: Array, joined: Array) -> Array:
    """Return a mask of the pairs with a right row."""
    return joined.storage.field("right").is_valid()


def table_join(
    name: str,
    left: PackedRows,
    right: PackedRows,
    join_type: JoinType,
    *,
    history: int | None,
    left_columns: Sequence[str],
    right_columns: Sequence[str],
    ttl: int | None = None,
    expired: Expired = Expired.SILENT,
    null_safe: bool = False,
) -> Verb:
    """Return the verb; a join by foreign key if the left rows have one in front.

    Args:
        name: its name.
        left, right: its inputs, with topics ``left`` and ``right``, and times of one type.
        join_type: inner, left, outer or, by foreign key, right.
        history: for versioned tables, how long versions and deletes are remembered, in microseconds; None to take
            changes in the order in which they arrive.
        left_columns, right_columns: the columns of either side in the result, besides its key's; the columns of a
            foreign key are in the key of a result that keeps right rows.
        ttl: by key, how long a row of either side lives after its time, in microseconds; None for ever.
        expired: the treatment of expired rows.
        null_safe: whether null keys are equal.
    """
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    one, other = (side_table(builder, rows, history, ttl, expired) for rows in (left, right))
    keys, shown = Keys.of_rows(left), left_columns
    if left.foreign is not None and join_type.keeps(Side.RIGHT):
        joined_keys = JoinedKeys(left, right)
        _with_right_rows(one, other, join_type, joined_keys).to(name)
        keys = Keys(joined_keys.codec, topics=(left.topic, right.topic))
        shown = [column for column in left_columns if column not in joined_keys.codec.schema.names]
    elif left.foreign is not None:
        _joined_by_foreign_key(one, other, join_type).to(name)
    else:
        _joined_by_key(one, other, join_type).to(name)
        keys = Keys.of_rows(left, right) if join_type.keeps(Side.RIGHT) else keys
    rows = JoinedRows(left.rows, right.rows, shown, right_columns, foreign=left.foreign is not None)
    inputs = {left.topic: left, right.topic: right}
    times = Times(CHANGE_TIME, left.times)
    stores = {
        left.topic: (Keys.of_rows(left), Rows(left.rows, left_columns, left.foreign is not None), times),
        right.topic: (Keys.of_rows(right), Rows(right.rows, right_columns), times),
    }
    parts = keys, rows, ChangeColumns(left.times)
    terms = {"how": join_type.value, **null_safety(null_safe)}
    follows_time = history is not None or ttl is not None
    matching = TableMatching({"left": left, "right": right}, {"left": left_columns, "right": right_columns}, join_type)
    return Verb(builder.build(), inputs, parts, stores, follows_time=follows_time, terms=terms, matching=matching)


def _joined_by_key(one: KTable, other: KTable, join_type: JoinType) -> KTable:
    """Return the pairs, which no store keeps."""
    if join_type is JoinType.OUTER:
        return one.outer_join(other, pairs, vectorized=True)
    if join_type is JoinType.LEFT:
        return one.left_join(other, pairs, vectorized=True)
    return one.join(other, pairs, vectorized=True)


def _joined_by_foreign_key(one: KTable, other: KTable, join_type: JoinType) -> KTable:
    """Return the pairs that such a join keeps.

    An inner join is a left join without the rows that lack a partner: KIP-213's inner join sends nothing for a row
    whose foreign key is null, so a row that was deleted and put back with such a key within a micro-batch would keep
    its old result.
    """
    kept = Materialized(value_serde=PAIRS)
    joined = one.left_join(other, kept_pairs, kept, foreign_key=foreign_keys_of, vectorized=True)
    return joined if join_type is JoinType.LEFT else joined.filter(are_complete, vectorized=True)


def _with_right_rows(one: KTable, other: KTable, join_type: JoinType, keys: JoinedKeys) -> KStream:
    """Return the changes of the pairs by their keys, also of right rows that no left row names."""
    kept = Materialized(value_serde=PAIRS)
    joined, unnamed = one.outer_join_on(other, kept_pairs, kept, foreign_key=foreign_keys_of, vectorized=True)
    if join_type is JoinType.RIGHT:
        joined = joined.filter(are_complete, vectorized=True)
    joined.handle.send_olds(force=True)
    # Tasks of the right keys have found them, and those of the left keys put out all results.
    alone = unnamed.to_stream().repartition().process(partial(RightResults, keys))
    return joined.to_stream().process(partial(LeftResults, keys)).merge(alone)


def side_table(
    builder: StreamsBuilder, rows: PackedRows, history: int | None, ttl: int | None, expired: Expired
) -> KTable:
    """Return the table of a side, in a store of its topic's name; the arguments are as in ``table_join``."""
    topic, in_turn = rows.topic, rows.in_turn
    if history is None:
        return table_of(builder, topic, Materialized(topic, ttl=ttl, expired=expired), in_turn=in_turn)
    ordered = rows.order is not None
    return sequenced_table(builder, topic, topic, history, ordered=ordered, in_turn=in_turn, ttl=ttl, expired=expired)
