"""The fingerprint of a topology: which topologies may take over its state."""

from dataclasses import replace

from millpond.processors import Consumed, KStream, Materialized, Produced, StreamsBuilder, Topology
from millpond.processors.runtime.record_processor import RecordProcessor
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.layouts import Layout

SPEC = StoreSpec("seen", StoreKind.KEY_VALUE, BYTES, BYTES)


class Ignoring(RecordProcessor):
    def process_record(self, key: object, value: object, timestamp: int) -> None:
        pass


def on(spec: StoreSpec) -> str:
    builder = StreamsBuilder()
    builder.add_state_store(spec)
    stream: KStream = builder.stream("in")
    stream.process(Ignoring, stores=[spec.name])
    return builder.build().fingerprint


def plain() -> Topology:
    builder = StreamsBuilder()
    prices = builder.table(
        "prices", Consumed("string", "float64"), Materialized.versioned("prices", history_retention=1000)
    )
    orders = builder.stream("orders", Consumed("string", "int64"))
    orders.join(prices, lambda order, price: order * price).to("out", Produced("string", "float64"))
    orders.group_by_key().count(Materialized("counts")).to("counts-out")
    return builder.build()


def test_the_fingerprint_of_stores_without_a_layout_never_moves() -> None:
    assert plain().fingerprint == "7dc470f122867ae3"


def test_the_fingerprint_tells_layouts_apart_by_name_and_number() -> None:
    layouts = [None, Layout("pebbles", 1), Layout("pebbles", 2), Layout("gravel", 1)]
    assert len({on(replace(SPEC, layout=layout)) for layout in layouts}) == len(layouts)
