"""The number of people in each town: a table grouped by something other than its key (KIP-904).

When a row of the table changes, it leaves its old group and joins its new one. A row that changes without moving to
another group updates it once, so nobody ever sees a town that has lost a resident for a moment.

It prints::

    Ada moves to Bath: {'Bath': 1}
    Ben moves to Bath: {'Bath': 2}
    Ada changes houses within Bath: {'Bath': 2}
    Ada moves to York: {'Bath': 1, 'York': 1}
    Ben leaves: {'Bath': 0}
"""

from millpond.processors import Consumed, Grouped, StreamsBuilder, TopologyDriver


def main() -> None:
    builder = StreamsBuilder()
    homes = builder.table("homes", Consumed("string", "json"))
    by_town = homes.group_by(lambda person, home: (home["town"], home), Grouped("string", "json"))
    by_town.count().to("residents")

    with TopologyDriver(builder.build()) as driver:
        for timestamp, (what, person, home) in enumerate(
            [
                ("Ada moves to Bath", "Ada", {"town": "Bath", "house": 1}),
                ("Ben moves to Bath", "Ben", {"town": "Bath", "house": 2}),
                ("Ada changes houses within Bath", "Ada", {"town": "Bath", "house": 3}),
                ("Ada moves to York", "Ada", {"town": "York", "house": 4}),
                ("Ben leaves", "Ben", None),
            ]
        ):
            driver.pipe("homes", person, home, timestamp)
            counts = {town: count for town, count, _ in driver.read("residents")}
            print(f"{what}: {counts}")


if __name__ == "__main__":
    main()
