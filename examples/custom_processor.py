"""A custom processor with a store and a timer: a sensor that has been silent for a minute raises an alarm.

The timer runs on stream time, so the same records always raise the same alarms, however fast they are processed.

It prints::

    boiler silent since 0, noticed at 60000
    pump silent since 55000, noticed at 120000
"""

from millpond.processors import (
    Consumed,
    Produced,
    PunctuationType,
    RecordProcessor,
    StreamsBuilder,
    TopologyDriver,
)
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

SILENCE = 60_000
LAST_SEEN = StoreSpec("last-seen", StoreKind.KEY_VALUE, STRING, INT64)


class SilenceAlarm(RecordProcessor):
    def open(self) -> None:
        self.last_seen = self.context.store("last-seen")
        self.schedule(SILENCE, PunctuationType.STREAM_TIME, self.check)

    def process_record(self, sensor: str, reading: float, timestamp: int) -> None:
        self.last_seen.put(sensor, timestamp)

    def check(self, now: int) -> None:
        for sensor, seen in list(self.last_seen.scan()):
            if now - seen >= SILENCE:
                self.forward(sensor, seen, now)
                self.last_seen.delete(sensor)


def main() -> None:
    builder = StreamsBuilder()
    readings = builder.stream("readings", Consumed("string", "float64"))
    readings.process(SilenceAlarm, stores=[LAST_SEEN]).to("alarms", Produced("string", "int64"))

    with TopologyDriver(builder.build()) as driver:
        for sensor, timestamp in [("boiler", 0), ("pump", 55_000), ("fan", 60_000), ("fan", 100_000), ("fan", 120_000)]:
            driver.pipe("readings", sensor, 20.5, timestamp)
        for sensor, seen, now in driver.read("alarms"):
            print(f"{sensor} silent since {seen}, noticed at {now}")


if __name__ == "__main__":
    main()
