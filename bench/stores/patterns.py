"""All patterns by name."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from millpond.bench.stores.key_values import Get, GetMany, Put, PutMany, Scan, Upsert
from millpond.bench.stores.pattern import Pattern
from millpond.bench.stores.versions import (
    LateVersionedPut,
    VersionedGet,
    VersionedGetAsOf,
    VersionedGetManyAsOf,
    VersionedPut,
)
from millpond.bench.stores.whole_stores import Restore, Upgrade, WholeStore
from millpond.bench.stores.windows import JoinChurn, SessionChurn, WindowChurn

AnyPattern: TypeAlias = Pattern | WholeStore

_ALL: Final[tuple[AnyPattern, ...]] = (
    Upsert(),
    Put(),
    Get(),
    PutMany(),
    GetMany(),
    Scan(),
    VersionedPut(),
    LateVersionedPut(),
    VersionedGet(),
    VersionedGetAsOf(),
    VersionedGetManyAsOf(),
    WindowChurn(),
    SessionChurn(),
    JoinChurn(),
    Restore(),
    Upgrade(),
)

PATTERNS: Final[Mapping[str, AnyPattern]] = {pattern.name: pattern for pattern in _ALL}
"""The measured patterns, in this order."""
