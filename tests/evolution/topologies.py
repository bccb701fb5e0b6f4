"""Topologies that are each other's evolution: stores of all kinds, which come, go, move and get other names."""

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Final, Self

from millpond.processors import (
    Batch,
    Consumed,
    Grouped,
    Materialized,
    Processor,
    Produced,
    Repartitioned,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from millpond.processors.distribution.plan import Plan, make_plan
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.windows.windowed import Windowed

TOPIC: Final = "clicks"
SINK: Final = "out"
LONG: Final = 1_000_000
SPAN: Final = 10
LATER: Final = 3
"""How much later than it starts each trip ends."""

OWN: Final = {"latest": StoreKind.KEY_VALUE, "spans": StoreKind.WINDOW, "trips": StoreKind.SESSION}
"""The stores of the processor below, which may be plain or timestamped."""
STORES: Final = (*OWN, "counts", "windows", "versions", "kinds")
"""What a topology may have."""
_STAMPED: Final = {
    StoreKind.KEY_VALUE: StoreKind.TIMESTAMPED_KEY_VALUE,
    StoreKind.WINDOW: StoreKind.TIMESTAMPED_WINDOW,
    StoreKind.SESSION: StoreKind.TIMESTAMPED_SESSION,
}


@dataclass(frozen=True)
class Variant:
    """One of the topologies, and how it is run.

    Attributes:
        names: what it calls each of the ``STORES`` that it has, by what that is for.
        partitions: the number of its tasks.
        moved: whether records are repartitioned before they come to a store.
        stamped: whether the processor's own stores are timestamped.
        checksums: whether the rows of local copies have checksums.
        versioned: whether the table of records is versioned.
    """

    names: tuple[tuple[str, str], ...]
    partitions: int = 2
    moved: bool = False
    stamped: bool = False
    checksums: bool = False
    versioned: bool = True

    @property
    def stores(self) -> dict[str, str]:
        return dict(self.names)

    @property
    def table(self) -> StoreKind:
        """The kind of the store ``versions``."""
        return StoreKind.VERSIONED if self.versioned else StoreKind.TIMESTAMPED_KEY_VALUE

    def with_stores(self, stores: dict[str, str]) -> Self:
        return replace(self, names=tuple(sorted(stores.items())))

    def plan(self) -> Plan:
        return make_plan(_topology(self.names, self.moved, self.stamped, self.versioned), SINK, self.partitions)


class Own(Processor):
    """Keeps each record in the stores that are there, and forwards the value that its key had before."""

    def __init__(self, names: dict[str, str], stamped: bool) -> None:
        self._names = names
        self._stamped = stamped

    def process(self, batch: Batch) -> None:
        before = list(map(self._kept, batch.keys, batch.values, batch.timestamps))
        self.context.forward(batch.with_values([f"latest={value}" for value in before]))

    def _kept(self, key: str, value: int | None, time: int) -> int | None:
        stores = {what: self.context.store(name) for what, name in self._names.items()}
        before = None
        stamp = [time] if self._stamped else []
        if "latest" in stores:
            found = stores["latest"].get(key)
            before = found.value if self._stamped and found is not None else found
            stores["latest"].put(key, value, *stamp)
        if "spans" in stores:
            stores["spans"].put(key, value, *stamp, time - time % SPAN)
        if "trips" in stores:
            stores["trips"].put(Windowed(key, time, time + LATER), value, *stamp)
        return before


@cache
def _topology(names: tuple[tuple[str, str], ...], moved: bool, stamped: bool, versioned: bool) -> Topology:
    stores, builder = dict(names), StreamsBuilder(order="arrival")
    clicks = builder.stream(TOPIC, Consumed("string", "int64"))
    if moved:
        clicks = clicks.repartition(Repartitioned("string", "int64"))
    specs = [_own_spec(what, stores[what], stamped) for what in OWN if what in stores]
    own = {what: stores[what] for what in OWN if what in stores}
    results = clicks.process(
        partial(Own, own, stamped), stores=specs, keeps_key=True, key_serde="string", value_serde="string"
    )
    grouped = clicks.group_by_key(Grouped("string", "int64"))
    if "counts" in stores:
        counts = grouped.count(Materialized(stores["counts"])).to_stream()
        results = results.merge(counts.map_values(lambda n: f"counts={n}", value_serde="string"))
    if "windows" in stores:
        counted = grouped.windowed_by(TimeWindows(SPAN, grace=LONG)).count(Materialized(stores["windows"])).to_stream()
        told = counted.map(_told_window, key_serde="string", value_serde="string")
        results = results.merge(told)
    if "versions" in stores:
        name = stores["versions"]
        clicks.to_table(Materialized.versioned(name, history_retention=LONG) if versioned else Materialized(name))
    if "kinds" in stores:
        kinds = results.group_by(_kind, Grouped("string", "string")).count(Materialized(stores["kinds"]))
        results = kinds.to_stream().map_values(lambda n: f"kinds={n}", value_serde="string")
    results.to(SINK, Produced("string", "string"))
    return builder.build()


def _own_spec(what: str, name: str, stamped: bool) -> StoreSpec:
    kind = _STAMPED[OWN[what]] if stamped else OWN[what]
    limits: dict[str, Any] = {"spans": {"retention": LONG, "window_size": SPAN}, "trips": {"retention": LONG}}
    return StoreSpec(name, kind, STRING, INT64, **limits.get(what, {}))


def _told_window(window: Windowed[str], count: int) -> tuple[str, str]:
    return window.key, f"windows@{window.start}={count}"


def _kind(_: str, told: str) -> str:
    """Return which store a result tells of."""
    return told.partition("=")[0].partition("@")[0]
