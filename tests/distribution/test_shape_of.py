"""The shape of a plan's state: its stores, where they are, and by whose bytes records find them."""

from millpond.processors import Consumed, Grouped, Materialized, Produced, StreamsBuilder, TimeWindows, Topology
from millpond.processors.distribution.plan import make_plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.tables.foreign_key.messages import FOREIGN_KEY_SUBSCRIPTIONS_CARRIAGE
from millpond.stores.evolution.record_keys import RecordKeys
from millpond.stores.evolution.shape import StoreShape
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.windows.windowed import Windowed


def orders() -> Topology:
    """Return orders with the names of their countries, counted by country; beside them customers, for another sink."""
    builder = StreamsBuilder()
    countries = builder.global_table("countries", Consumed("int64", "string"), Materialized("countries"))
    customers = builder.stream("customers", Consumed("string", "string"))
    customers.group_by_key().count(Materialized("customers")).to("seen", Produced(schema="key string, value long"))
    named = builder.stream("orders", Consumed("string", "int64")).join(
        countries, lambda _, name: name, selector=lambda _, country: country
    )
    by_name = named.select_key(lambda _, name: name, key_serde="string")
    by_name.group_by_key(Grouped("string", "string")).count(Materialized("counts")).to(
        "counts", Produced(schema="key string, value long")
    )
    return builder.build()


def test_a_shape_has_the_stores_that_a_sink_depends_on_with_the_serde_of_their_records_keys() -> None:
    plan = make_plan(orders(), "counts", 3)
    shape = shape_of(plan)
    assert shape.partitions == 3
    (countries,), (counts,) = shape.named("countries"), shape.named("counts")
    assert shape.named("customers") == ()
    assert counts == StoreShape(
        counts.subtopology, "counts", StoreKind.TIMESTAMPED_KEY_VALUE, "string", "int64", None, "string", False
    )
    assert (countries.key_serde, countries.record_key_serde, countries.is_global) == ("int64", "string", True)
    assert counts.subtopology != countries.subtopology


def test_subscriptions_at_a_windowed_table_lie_by_the_keys_of_its_records() -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    clicks = builder.stream("clicks").group_by_key().windowed_by(TimeWindows(10)).count(Materialized("counts"))
    named = Materialized("named", value_serde="string")
    rows = builder.table("rows").join(clicks, "{}{}".format, named, foreign_key=lambda row: Windowed(row, 0, 10))
    rows.to_stream().to("out")
    shape = shape_of(make_plan(builder.build(), "out", 3))
    (subscriptions,) = (store for store in shape.stores if "subscription" in store.name)
    assert subscriptions.record_key_serde == "string"
    assert subscriptions.layout is not None
    keys = RecordKeys(subscriptions, FOREIGN_KEY_SUBSCRIPTIONS_CARRIAGE, duplicates=False)
    assert keys.of_key(b"ann" + bytes(8)) == b"ann"
