"""``Materialized``: the store that holds a table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

from millpond.errors import MissingSerdeError, TopologyError
from millpond.processors.options.serdes import SerdeLike, resolved
from millpond.stores.encoding.times import Duration, to_length
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.expiry import Expired, to_ttl
from millpond.stores.typed.versions.late_puts import LatePuts
from millpond.stores.typed.windows.calendar import Calendar

TABLE_KINDS: Final = (StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.VERSIONED, StoreKind.KEY_VALUE)
"""The kinds of stores that hold a table by key; the first one is that of a table for which nobody chooses.

A plain one forgets timestamps, so results take the other side's.
"""


@dataclass(frozen=True)
class Materialized:
    """The store that holds a table. Durations are int milliseconds, ``timedelta``, or text such as ``"5 minutes"``.

    Attributes:
        name: the store's name; None to generate one.
        kind: the kind of store; None for the operator's default.
        backend: a backend name or URL for this store alone; None for the job's.
        checksums: whether each row of this store has a checksum, which every read verifies; None for the job's choice.
        key_serde, value_serde: the serdes of the table's rows; None for those of the operator's input or result.
        history_retention: for a versioned store, how far back versions can be read, and, unless ``grace`` says
            otherwise, how late a record may be (KIP-889).
        grace: for a versioned store, how late a record may be.
        late_puts: for a versioned store, the treatment of records that are later than that.
        retention: for a window or session store, how long a window is kept after stream time has passed its start.
        ttl: for a key-value store with timestamps, which is what tables and aggregates by key have, how long an entry
            lives after its last update, by the store's stream time: an older entry is as if it had been deleted.
        expired: ``"silent"``, or ``"delete"`` to forward that an entry was deleted once it has expired.
        caching: whether only the last update of each key in a micro-batch is emitted.

    Raises:
        ConfigurationError: a duration is negative or not a length of time.
    """

    name: str | None = None
    kind: StoreKind | None = None
    backend: str | None = None
    key_serde: SerdeLike | None = None
    value_serde: SerdeLike | None = None
    history_retention: Duration | None = None
    grace: Duration | None = None
    late_puts: LatePuts = LatePuts.REFUSED
    retention: Duration | None = None
    ttl: Duration | None = None
    expired: Expired | Literal["silent", "delete"] = Expired.SILENT
    caching: bool = False
    checksums: bool | None = None

    def __post_init__(self) -> None:
        for what in ("history_retention", "grace", "retention"):
            self._millis(what)
        if self.ttl is not None:
            to_ttl(self.ttl, self.name or "of Materialized")
        object.__setattr__(self, "expired", Expired.of(self.expired))

    @classmethod
    def versioned(cls, name: str | None = None, *, history_retention: Duration, **options: Any) -> Self:
        """Return a versioned store (KIP-889, KIP-914); ``options`` are the other attributes."""
        return cls(name, StoreKind.VERSIONED, history_retention=history_retention, **options)

    @classmethod
    def with_serdes(cls, key_serde: SerdeLike | None = None, value_serde: SerdeLike | None = None) -> Self:
        """Name only serdes; an operator that needs no store gets none."""
        return cls(key_serde=key_serde, value_serde=value_serde)

    def with_caching(self, caching: bool = True) -> Self:
        """Return a copy with ``caching``: only the last update of each key in a micro-batch is emitted."""
        return replace(self, caching=caching)

    @property
    def has_store(self) -> bool:
        """True if this asks for a store even where the operator needs none."""
        return self.name is not None or self.kind is not None or self.ttl is not None

    def spec(
        self,
        default_name: str,
        kinds: Sequence[StoreKind],
        key_serde: SerdeLike | None,
        value_serde: SerdeLike | None,
        *,
        retention: int | None = None,
        window_size: int | None = None,
        calendar: Calendar | None = None,
    ) -> StoreSpec:
        """Return the spec of the store; ``retention``, in milliseconds, counts for stores of windows that name none.

        Args:
            default_name: its name, unless this has one.
            kinds: the kinds that can hold the table; the first of them counts unless this chooses another.
            key_serde, value_serde: the serdes of the input; they count where this names none.
            retention, window_size: the retention and size of windows, in milliseconds.
            calendar: the calendar of the windows, if they have one.

        Raises:
            TopologyError: a serde is not known, here or from the input, or the kind is none of these.
        """
        name = self.name or default_name
        if self.kind is not None and self.kind not in kinds:
            raise TopologyError(
                f"store {name!r} of kind {self.kind.value} cannot hold this table; leave the kind out, or choose "
                f"{' or '.join(kind.value for kind in kinds)}"
            )
        key, value = resolved(self.key_serde or key_serde), resolved(self.value_serde or value_serde)
        if key is None or value is None:
            missing = "key" if key is None else "value"
            raise MissingSerdeError(
                f"store {name!r} has no {missing} serde: name one in Materialized({missing}_serde=...), in Consumed, "
                f"or as StreamsBuilder({missing}_serde=...)"
            )
        return StoreSpec(
            name=name,
            kind=self.kind or kinds[0],
            key_serde=key,
            value_serde=value,
            backend=self.backend,
            checksums=self.checksums,
            history_retention=self._millis("history_retention"),
            grace=self._millis("grace"),
            late_puts=self.late_puts,
            retention=retention if self.retention is None else self._millis("retention"),
            window_size=window_size,
            calendar=calendar,
            ttl=None if self.ttl is None else to_ttl(self.ttl, name),
            expired=Expired.of(self.expired),
        )

    def _millis(self, what: str) -> int | None:
        duration: Duration | None = getattr(self, what)
        return None if duration is None else to_length(duration, f"{what} of Materialized")
