"""The topologies of the demo, in the DSL. They know nothing of Spark except its columns.

Values are structs, and functions take the columns of many records at once, so nobody makes a Python object of a flight.
"""

from datetime import timedelta
from typing import Any

import pyarrow.compute as _compute

from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder, Topology

pc: Any = _compute

OBSERVED = ("weather_time_ms", "temp", "wind_speed", "precip", "visib")
FLIGHT = "struct<carrier:string, flight:long, tailnum:string, origin:string, dest:string, sched_dep_ms:long>"
OBSERVATION = "struct<weather_time_ms:long, temp:double, wind_speed:double, precip:double, visib:double>"
FLIGHTS = Consumed("string", FLIGHT, key="origin", timestamp="sched_dep_ms")
WEATHER = Consumed("string", OBSERVATION, key="origin", timestamp="weather_time_ms")

HISTORY = timedelta(days=3)
"""A flight arrives up to two days late, and then needs the observation before its departure; a day is spare."""


SCHEMA = (
    "carrier string, flight long, tailnum string, origin string, dest string, sched_dep_ms long, "
    "weather_time_ms long, temp double, wind_speed double, precip double, visib double"
)


def flights_weather() -> Topology:
    """Join each flight with the weather at its airport as of its scheduled departure.

    The table is named first: an observation and a departure in the same millisecond are processed in this order.
    """
    builder = StreamsBuilder()
    weather = builder.table("weather", WEATHER, Materialized.versioned("weather", history_retention=HISTORY))
    flights = builder.stream("flights", FLIGHTS)
    flights.left_join(weather, with_weather, vectorized=True).to("flights_weather", Produced(schema=SCHEMA))
    return builder.build()


def carrier_counts() -> Topology:
    """Count the flights of each carrier that have arrived; the timestamp is that of the latest departure among them."""
    builder = StreamsBuilder()
    flights = builder.stream("flights", FLIGHTS)
    counts = (
        flights.select_key(carrier, vectorized=True).group_by_key().count(Materialized("carrier_counts").with_caching())
    )
    counts.to("carrier_counts", Produced(schema="key string, value long, timestamp long"))
    return builder.build()


def with_weather(flights: Any, weather: Any) -> Any:
    """Return the flights, each with its observation; with None for everything if the table has none as of that time."""
    columns = dict.fromkeys(field.name for field in flights.type)
    return pc.make_struct(
        *(pc.struct_field(flights, name) for name in columns),
        *(pc.struct_field(weather, name) for name in OBSERVED),
        field_names=[*columns, *OBSERVED],
    )


def carrier(origins: Any, flights: Any) -> Any:
    """Return the keys that flights are counted by; all of them at once, as Arrow arrays."""
    return pc.struct_field(flights, "carrier")
