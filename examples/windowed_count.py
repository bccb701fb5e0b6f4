"""Page views counted per minute, each count coming out once, when its window can no longer change.

It prints::

    12:00 to 12:01: 1 x /cart
    12:00 to 12:01: 3 x /home
    12:01 to 12:02: 1 x /cart
    12:01 to 12:02: 1 x /home
    too late and dropped: 1
"""

from datetime import UTC, datetime, timedelta

from millpond.processors import Consumed, EmitStrategy, StreamsBuilder, TimeWindows, TopologyDriver

NOON = int(datetime(2025, 6, 1, 12, tzinfo=UTC).timestamp() * 1000)


def clock(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%H:%M")


def main() -> None:
    builder = StreamsBuilder()
    views = builder.stream("views", Consumed("string", "string"))
    minutes = TimeWindows(timedelta(minutes=1), grace=timedelta(seconds=10))
    counts = views.group_by_key().windowed_by(minutes).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
    counts.to("counts")

    with TopologyDriver(builder.build()) as driver:
        for page, seconds in [
            ("/home", 5),
            ("/cart", 20),
            ("/home", 59),
            ("/home", 65),  # opens the next window; the first still waits for its grace period
            ("/home", 58),  # late, but within the grace period
            ("/cart", 70),  # stream time is now 12:01:10: the first minute is final
            ("/cart", 50),  # too late
            ("/cart", 130),
        ]:
            driver.pipe("views", page, "view", timestamp=NOON + seconds * 1000)
        for (page, start, end), count, _ in driver.read("counts"):
            print(f"{clock(start)} to {clock(end)}: {count} x {page}")
        dropped = sum(n for name, n in driver.counters.items() if name.endswith(":dropped-late"))
        print(f"too late and dropped: {dropped}")


if __name__ == "__main__":
    main()
