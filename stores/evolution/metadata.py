"""The metadata of a store, when its partitions become one, or others.

Rule of this module: metadata of a single old partition is copied. Metadata of several is brought together by the rules
of the store's kind and layout; metadata without a rule, such as a user's own, must be the same in all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from millpond.errors import StoresChangedError
from millpond.stores.encoding.keys import METADATA
from millpond.stores.evolution.carriage import NO_LAYOUT, LayoutCarriage, OldStore, Rule, greatest
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.expiry import CLOCK_NAME, HORIZON_NAME, TIMED_NAME
from millpond.stores.typed.observed_stream_time import METADATA_NAME as OBSERVED
from millpond.stores.typed.terms import TERMS, merged_terms
from millpond.stores.typed.windows.segments import METADATA_NAME as INTERVAL
from millpond.stores.typed.windows.window import SEQUENCE_NAME as SEQUENCE

_ANY: Final = "*"
_OF_ALL: Final[Mapping[str, Rule]] = {
    TERMS: merged_terms,
    HORIZON_NAME: greatest,
    CLOCK_NAME: greatest,
    TIMED_NAME: lambda found: None,  # Timers are carried, too, and are written again for those that have none.
}
_OF_KEYS: Final[Mapping[str, Rule]] = {**_OF_ALL, OBSERVED: greatest}
_OF_SEGMENTS: Final[Mapping[str, Rule]] = {
    **_OF_KEYS,
    INTERVAL: lambda found: found[0],
    SEQUENCE: greatest,
}


def carried_metadata(
    olds: Sequence[OldStore],
    belongs: Callable[[bytes], bool],
    layouts: Mapping[str, LayoutCarriage],
    layout: str | None,
) -> dict[str, bytes]:
    """Return the metadata of one new partition.

    Args:
        olds: the store in the old partitions that have rows for it, at least one.
        belongs: returns whether a record's key goes to it.
        layouts: the carriages, by the name of the layout.
        layout: the name of the store's layout.

    Raises:
        StateConflictError: old partitions keep different metadata without a rule.
    """
    kind = olds[0].kind
    carriages = [layouts[name] for name in (NO_LAYOUT, layout) if name is not None and name in layouts]
    rules = {**_rules(kind), **{name: rule for carriage in carriages for name, rule in carriage.rules.items()}}
    content: dict[str, bytes | None] = {}
    for name in sorted({name for old in olds for name in old.metadata_names("")}):
        found = [data for old in olds if (data := old.get_metadata(name)) is not None]
        rule = _rule(rules, name)
        content[name] = rule(found) if rule is not None else _agreed(olds[0].name, name, found)
    for carriage in carriages:
        if carriage.revise is not None:
            content |= carriage.revise(olds, belongs)
    return {name: data for name, data in sorted(content.items()) if data is not None}


def metadata_rows(metadata: Mapping[str, bytes]) -> tuple[Any, Any]:
    """Return the keys and values of the rows of some metadata, in key order, as Arrow arrays."""
    rows = sorted((METADATA + name.encode(), data) for name, data in metadata.items())
    return pa.array([row for row, _ in rows], pa.binary()), pa.array([data for _, data in rows], pa.binary())


def _rules(kind: StoreKind) -> Mapping[str, Rule]:
    return _OF_SEGMENTS if kind.in_segments else _OF_KEYS


def _rule(rules: Mapping[str, Rule], name: str) -> Rule | None:
    if name in rules:
        return rules[name]
    return next(
        (rule for known, rule in rules.items() if known.endswith(_ANY) and name.startswith(known.removesuffix(_ANY))),
        None,
    )


def _agreed(store: str, name: str, found: Sequence[bytes]) -> bytes:
    if len(set(found)) > 1:
        raise StoresChangedError(
            f"partitions that become one keep different metadata {name!r} beside the rows of store {store!r}: "
            f"{', '.join(sorted(repr(data[:40]) for data in set(found)))}; nobody but the processor that put it knows "
            "what they are together, so keep the number of partitions, or drop the store"
        )
    return found[0]
