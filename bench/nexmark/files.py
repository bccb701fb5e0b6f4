"""Events in files, and the files as rows: several for each micro-batch, whose events interleave.

Rule of this module: which file an event is in depends on its place among those of its kind, and on nothing else.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millpond.bench.nexmark.draws import Numbers
from millpond.bench.nexmark.events import Site
from millpond.bench.spark.inputs import Source, write_micro_batch
from millpond.bench.spark.shapes import Scale

PERSONS: Final = Source(
    "persons",
    "id long, name string, emailAddress string, creditCard string, city string, state string, dateTime timestamp, "
    "extra string",
)
AUCTIONS: Final = Source(
    "auctions",
    "id long, itemName string, description string, initialBid long, reserve long, dateTime timestamp, "
    "expires timestamp, seller long, category long, extra string",
)
BIDS: Final = Source(
    "bids",
    "auction long, bidder long, price long, channel string, url string, dateTime timestamp, extra string, "
    "arrived timestamp",
)
SOURCES: Final = (PERSONS, AUCTIONS, BIDS)


def write_events(
    site: Site,
    place: Path,
    sources: Sequence[Source],
    scale: Scale,
    batches: int,
    *,
    growing: bool = False,
    seed: int | None = None,
) -> None:
    """Write ``batches`` micro-batches below ``place``, as ``write_inputs`` does.

    Args:
        site: makes the events.
        place: gets a directory for each source.
        sources: the wanted ones of persons, auctions and bids.
        scale: how many events and files a micro-batch has.
        batches: how many micro-batches.
        growing: no meaning here: persons and auctions become more with time, whatever is asked for.
        seed: no meaning here: the site has its own.
    """
    for source in sources:
        (place / source.name).mkdir()
    for number in range(batches):
        for name, rows in events_of(site, number * scale.rows, scale.rows, sources).items():
            write_micro_batch(place / name, number, _dealt(rows, scale.files), scale.files)


def events_of(site: Site, first: int, count: int, sources: Sequence[Source] = SOURCES) -> dict[str, pa.Table]:
    """Return persons, auctions and bids among the events emitted from a place on, by the names of their sources."""
    emitted = site.emitted(first, count)
    makers: dict[str, Callable[[Numbers], pa.Table]] = {
        PERSONS.name: site.persons,
        AUCTIONS.name: site.auctions,
        BIDS.name: partial(site.bids, first=first),
    }
    return {source.name: makers[source.name](emitted) for source in sources}


def emitted_rows(place: Path, scale: Scale, source: str, batches: int, columns: Sequence[str]) -> pa.Table:
    """Return columns of the first ``batches`` micro-batches of a source, in the order in which they are emitted."""
    found = []
    for number in range(batches):
        parts = sorted((place / source).glob(f"{number:06d}-*.parquet"))
        dealt = pa.concat_tables(pq.read_table(part, columns=list(columns)) for part in parts)
        found.append(dealt.take(np.argsort(_dealing(len(dealt), scale.files))))
    return pa.concat_tables(found)


def _dealt(rows: pa.Table, files: int) -> pa.Table:
    """Return the rows in an order in which equal parts have every so-manyth of them."""
    return rows.take(_dealing(len(rows), files))


def _dealing(rows: int, files: int) -> Numbers:
    """Return the places of the rows, in the order in which they are dealt out."""
    return np.argsort(np.arange(rows) % files, kind="stable")
