"""The ratios of speeds in one run: how many times as fast a contender is as another one.

Rule of this module: both were measured on the same machine, one soon after the other, so their ratio moves less from
day to day than the speed of each.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from millpond.bench.documents import Contender, Document, Result, Throughput


@dataclass(frozen=True)
class Ratio:
    """The times that ``own`` is as fast as ``peer`` in a workload.

    The median is the document's own ratio if it has one, or else that of the medians. The least is that of the slowest
    run to the peer's fastest one, the most the other way round. There are as many runs as both have.
    """

    workload: str
    own: str
    peer: str
    times: Throughput


def ratios(document: Document) -> list[Ratio]:
    """Return the ratios of a document: those that it names, or else those of backends.

    A backend is beside its own engine if that was measured, or else beside each peer.
    """
    return [
        _ratio(found[own], found[peer], document)
        for workload in document.workloads()
        for found in (document.of(workload),)
        for own, peer in _pairs(document, workload, found)
    ]


def _pairs(document: Document, workload: str, found: Mapping[str, Result]) -> Iterator[tuple[str, str]]:
    if document.queries:
        query = document.queries.get(workload)
        if query is not None and query.own in found:
            yield from ((query.own, peer) for peer in query.ratios if peer in found)
        return
    measured = [contender for contender in document.contenders if contender.label in found]
    for own in (contender for contender in measured if contender.kind == "backend"):
        yield from ((own.label, peer.label) for peer in _beside(own, measured))


def _beside(own: Contender, measured: list[Contender]) -> list[Contender]:
    engines = [one for one in measured if one.kind == "engine" and one.name == own.name]
    return engines or [one for one in measured if one.kind == "peer"]


def _ratio(own: Result, peer: Result, document: Document) -> Ratio:
    one, other = own.throughput, peer.throughput
    query = document.queries.get(own.workload)
    told = None if query is None else query.ratios.get(peer.contender)
    low, high = one.low / other.high, one.high / other.low
    median = told if told else one.median / other.median
    runs = tuple(mine / theirs for mine, theirs in zip(one.runs, other.runs, strict=False))
    times = Throughput(min(max(median, low), high), low, high, runs)
    return Ratio(own.workload, own.contender, peer.contender, times)
