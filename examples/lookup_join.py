"""Trades meet the quotes of a table in files, by version: each micro-batch reads what is there when it begins.

Nothing is copied: a file that is added is read by the next micro-batch, and what has come out stays. It prints::

    [{'symbol': 'ACME', 'id': 1, 'bid': 9.5}]
    [{'symbol': 'ACME', 'id': 2, 'bid': 9.75}]
    the match is that of 2026-06-01 09:03:00: valid at the time of the row
"""

import tempfile
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from millpond import Pond
from millpond.adapters.tables import ParquetTable

OPEN = datetime(2026, 6, 1, 9)


def quote(place: str, minute: int, bid: float) -> None:
    table = pa.table({"symbol": ["ACME"], "quoted": [OPEN + timedelta(minutes=minute)], "bid": [bid]})
    pq.write_table(table, f"{place}/{minute}.parquet")


def trade(number: int) -> pa.Table:
    return pa.table({"symbol": ["ACME"], "traded": [OPEN + timedelta(minutes=5)], "id": [number]})


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        quote(place, 0, 9.5)
        verbs = Pond().in_batches
        with verbs.lookup_join(
            trade(0).schema, ParquetTable(place), on="symbol", left_time="traded", right_time="quoted", columns=["bid"]
        ) as priced:
            for number in (1, 2):
                found = priced.feed(left=trade(number))
                print(found.select(["symbol", "id", "bid"]).to_pylist())
                quote(place, 3, 9.75)
            print(priced.explain_match(found.to_pylist()[0]).verdict)


if __name__ == "__main__":
    main()
