"""The preview of an evolution, as data.

Rule of this module: it shows what was found, and neither reads nor writes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from millpond.stores.evolution.carrying import Origin
from millpond.stores.evolution.losses import Loss


@dataclass(frozen=True)
class Preview:
    """The preview of an evolution, which ``evolve`` would carry out.

    Attributes:
        partitions: the number of partitions now and after it; None if there is nothing to do.
        stores: the origin of each store of the new shape, by name; None for one that begins empty.
        losses: the losses of stores that become another kind, by name.
        dropped: the stores that would be gone, sorted.
        kept: the numbers of the sub-topologies that keep their files, sorted.
        written: the numbers of the sub-topologies that are written anew, sorted.
        refused: the reason to refuse it; None if there is none.
    """

    partitions: tuple[int, int] | None = None
    stores: Mapping[str, Origin | None] = field(default_factory=dict)
    losses: Mapping[str, Loss] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    kept: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    refused: str | None = None

    def lines(self) -> Iterator[str]:
        """Yield the preview as lines of text."""
        if self.partitions is None:
            yield "nothing to do"
            return
        before, after = self.partitions
        yield f"partitions: {before} -> {after}"
        for name, origin in self.stores.items():
            yield f"store {name!r}: {self._told(name, origin)}"
        for name in self.dropped:
            yield f"store {name!r}: dropped"
        yield f"sub-topologies that keep their files: {list(self.kept) or 'none'}"
        yield f"sub-topologies that are written anew: {list(self.written) or 'none'}"
        if self.refused is not None:
            yield f"refused: {self.refused}"

    def to_dict(self) -> dict[str, Any]:
        """Return the preview as an object of JSON."""
        before, after = self.partitions or (None, None)
        return {
            "nothing_to_do": self.partitions is None,
            "partitions_before": before,
            "partitions": after,
            "stores": [self._as_json(name, origin) for name, origin in self.stores.items()],
            "dropped": list(self.dropped),
            "kept_subtopologies": list(self.kept),
            "written_subtopologies": list(self.written),
            "refused": self.refused,
        }

    def _told(self, name: str, origin: Origin | None) -> str:
        if origin is None:
            return "begins empty"
        told = f"continues {origin.name!r} of sub-topology {origin.subtopology}"
        if origin.conversion is None:
            return told
        return f"{told}; {origin.conversion.before.value} -> {origin.conversion.after.value}, {self.losses[name]}"

    def _as_json(self, name: str, origin: Origin | None) -> dict[str, Any]:
        conversion = None if origin is None else origin.conversion
        return {
            "store": name,
            "continues": None if origin is None else origin.name,
            "kind_before": None if conversion is None else conversion.before.value,
            "kind": None if conversion is None else conversion.after.value,
            "lost_versions": self.losses[name].versions if name in self.losses else 0,
            "lost_timestamps": self.losses[name].timestamps if name in self.losses else 0,
        }
