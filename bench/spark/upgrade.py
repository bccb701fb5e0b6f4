"""The cost of an upgrade of local copies to a query's micro-batches on Spark: in place, by roll over, offline.

Rule of this module: only when the query has ended do checkpoint and files tell which of its micro-batches were
prepared, or warm, or wrote a snapshot; the latter are counted apart, because they are long in every phase.
"""

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from millpond.bench.durability.upgrade import WARM, Phase
from millpond.bench.runs.asked import check_known
from millpond.bench.spark.counting import CHECKED, PLAIN, TIMESTAMPED, Feed, Query, Ran
from millpond.bench.spark.queries import scratch, session
from millpond.processors import Topology
from millpond.stores.backend.registry import supplier
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode


class Upgrade(NamedTuple):
    """The topology before and after, and the latter's name in this module."""

    old: Topology
    new: Topology
    name: str


UPGRADES: Final[Mapping[str, Upgrade]] = {
    "timestamped": Upgrade(PLAIN, TIMESTAMPED, "TIMESTAMPED"),
    "checksums": Upgrade(TIMESTAMPED, CHECKED, "CHECKED"),
}
"""The upgrades, as ``millpond.bench.durability.upgrade`` has them."""

BATCHES: Final = 20
"""The default number of micro-batches of each phase."""

_AT_ONCE: Final = 50
"""The most micro-batches of a query that prepares: Spark retains 100, and all of them are asked for manifests."""


def run(
    backends: Sequence[str],
    keys: int,
    *,
    upgrades: Sequence[str] = tuple(UPGRADES),
    rows: int = 20_000,
    batches: int = BATCHES,
    cores: int = 2,
    seed: int = 1,
    directory: Path | None = None,
) -> dict[str, Any]:
    """Upgrade a query on each backend, in every way that it has, while micro-batches go on.

    Args:
        backends: names or URLs of backends.
        keys: of the store.
        upgrades: names in ``UPGRADES``.
        rows: of a micro-batch.
        batches: of each phase; while the new format is being prepared or warmed, as many as that takes.
        cores: of Spark, and tasks of the query.
        seed: of all chance.
        directory: where the files go; by default the temporary directory.

    Raises:
        ConfigurationError: an upgrade is unknown.
    """
    check_known("upgrade", upgrades, UPGRADES)
    results: list[dict[str, Any]] = []
    with session(cores) as spark:
        for backend in backends:
            for upgrade in upgrades:
                with scratch(directory) as temporary:
                    place = Path(temporary)
                    query = Query(spark, Feed(place, keys, rows, seed=seed), backend, place / "query")
                    ways = list(_ways(query, UPGRADES[upgrade], batches, place, supplier(backend).persistent))
                for way in ways:
                    results += [{"backend": backend, "upgrade": upgrade} | phase.figures(rows, way[0]) for phase in way]
    return {"keys": keys, "rows": rows, "cores": cores, "seed": seed, "phases": results}


def _ways(query: Query, upgrade: Upgrade, batches: int, place: Path, persistent: bool) -> Iterator[list[Phase]]:
    """Yield phases; those in place come after micro-batches of their own, as a JVM gets quicker for a long time."""
    query.run(upgrade.old, 1 + batches)  # all keys, and then the worst of that is over
    phases = [_phase("before", query.run(upgrade.old, 1 + batches))]
    with query.twin(place / "offline") as twin:
        phases.append(_phase("offline", twin.run(upgrade.new, 1)))
    if persistent:
        with query.twin(place / "roll-over") as twin:
            phases += _roll_over(twin, upgrade, batches)
    yield phases
    if persistent:
        yield [_phase("before", query.run(upgrade.old, 1 + batches)), *_in_place(query, upgrade.new, batches)]


def _phase(name: str, ran: Sequence[Ran]) -> Phase:
    """Return the phase of micro-batches from a restart on."""
    first, *others = (one.batch for one in ran)
    return Phase(name, first, others)


def _roll_over(query: Query, upgrade: Upgrade, batches: int) -> Iterator[Phase]:
    warming, warm = Phase("warming"), Phase("warm")
    with query.warmed(upgrade.name) as ready:
        while not ready.done():
            first, *others = query.run(upgrade.new, 1 + batches, mode=UpgradeMode.ROLL_OVER)
            warming.first = warming.first or first.batch
            moment = ready.result() if ready.done() else time.time()
            warming.batches += [one.batch for one in others if one.end <= moment]
            warm.batches += [one.batch for one in others if one.end > moment]
        yield warming
        _, *others = query.run(upgrade.new, 1 + batches, mode=UpgradeMode.ROLL_OVER)
        warm.batches += [one.batch for one in others]
        yield warm
    yield _phase("rolled over", query.run(upgrade.new, 1, local=WARM))


def _in_place(query: Query, new: Topology, batches: int) -> Iterator[Phase]:
    preparing, prepared = Phase("preparing"), Phase("prepared")
    done = False
    while not done:
        ran = query.run(new, 1 + min(batches, _AT_ONCE), mode=UpgradeMode.IN_PLACE)
        preparing.first = preparing.first or ran[0].batch
        done = query.prepared()
        last = bisect_left(ran, True, key=lambda one: query.prepared(one.number)) if done else len(ran)
        preparing.batches += [one.batch for one in ran[1 : last + 1]]
        prepared.batches += [one.batch for one in ran[last + 1 :]]
    yield preparing
    _, *others = query.run(new, 1 + batches, mode=UpgradeMode.IN_PLACE)
    prepared.batches += [one.batch for one in others]
    yield prepared
    yield _phase("after", query.run(new, 1 + batches))
