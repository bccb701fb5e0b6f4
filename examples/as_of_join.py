"""Orders joined with the price that was valid when each was made, however late either of them arrives.

It prints::

    3 apples ordered at 6000 cost 6.00
    3 apples ordered at 4000 cost 3.00
    3 apples ordered at 4500 cost 4.50
"""

from datetime import timedelta

from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder, TopologyDriver


def main() -> None:
    builder = StreamsBuilder()
    prices = builder.table(
        "prices",
        Consumed("string", "float64"),
        Materialized.versioned("prices", history_retention=timedelta(hours=1)),
    )
    orders = builder.stream("orders", Consumed("string", "int64"))
    orders.join(prices, lambda pieces, price: (pieces, pieces * price)).to("bills", Produced(value_serde="msgpack"))

    with TopologyDriver(builder.build(), backend="lmdb") as shop:
        shop.pipe("prices", "apple", 1.00, timestamp=1_000)
        shop.pipe("prices", "apple", 2.00, timestamp=5_000)
        shop.pipe("orders", "apple", 3, timestamp=6_000)
        shop.pipe("orders", "apple", 3, timestamp=4_000)  # late: ordered before the price rose
        shop.pipe("prices", "apple", 1.50, timestamp=3_000)  # late, too: the price from 3,000 to 5,000
        shop.pipe("orders", "apple", 3, timestamp=4_500)
        for bill in shop.read("bills"):
            pieces, amount = bill.value
            print(f"{pieces} {bill.key}s ordered at {bill.timestamp} cost {amount:.2f}")


if __name__ == "__main__":
    main()
