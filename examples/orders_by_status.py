"""The number and the worth of the orders of each status: an aggregate of a table that changes, kept current.

``latest`` makes a table of the changes of orders, and ``aggregate`` takes an order out of the group that it leaves. So
no order counts twice, and a status without orders is deleted.

It prints::

    two new orders: [('new', 2, 50)]
    the first one is paid: [('new', 1, 20), ('paid', 1, 30)]
    the second one grows, and is paid: [('new', 'deleted'), ('paid', 2, 75)]
    the first one is deleted: [('paid', 1, 45)]
"""

from datetime import datetime, timedelta

import pyarrow as pa

from millpond import Pond
from millpond.processors.verbs import aggregates as agg

COLUMNS: list[tuple[str, pa.DataType]] = [
    ("id", pa.int64()), ("status", pa.string()), ("amount", pa.int64()),
    ("at", pa.timestamp("us")), ("op", pa.string()),
]  # fmt: skip
ORDERS = pa.schema(COLUMNS)


def orders(*rows: tuple[int, str, int, int, str]) -> pa.Table:
    """Return changes of orders: id, status, amount, minute and operation."""
    made = [(*row[:3], datetime(2026, 6, 1) + timedelta(minutes=row[3]), row[4]) for row in rows]
    return pa.Table.from_pylist([dict(zip(ORDERS.names, row, strict=True)) for row in made], ORDERS)


def main() -> None:
    pond = Pond().in_batches
    with pond.latest(ORDERS, key="id", time="at", op="op", history="1 day") as latest:
        feed = latest.feed(orders())
        calls = {"orders": agg.count(), "worth": agg.sum("amount")}
        with pond.aggregate(feed.schema, calls, by="status", time="at") as by_status:
            for what, changes in [
                ("two new orders", orders((1, "new", 30, 1, "insert"), (2, "new", 20, 2, "insert"))),
                ("the first one is paid", orders((1, "paid", 30, 3, "update"))),
                (
                    "the second one grows, and is paid",
                    orders((2, "new", 45, 4, "update"), (2, "paid", 45, 5, "update")),
                ),
                ("the first one is deleted", orders((1, "paid", 30, 6, "delete"))),
            ]:
                rows = by_status.feed(latest.feed(changes)).sort_by("status").to_pylist()
                print(f"{what}: {[shown(row) for row in rows]}")


def shown(row: dict[str, object]) -> tuple[object, ...]:
    """Return what a change says of a status."""
    return (row["status"], "deleted") if row["op"] == "delete" else (row["status"], row["orders"], row["worth"])


if __name__ == "__main__":
    main()
