"""The kind of a store, by its files and by what the user says.

=================================  ==================================================================
what is there                      which kind it is
=================================  ==================================================================
``keyValueWithTimestamp``          timestamped-key-value, or with segments timestamped-window
only ``default``                   key-value or versioned: the user has to say
only ``default``, with segments    window or session: the user has to say
=================================  ==================================================================

Rule of this module: it knows directories and column families. That the rows are of the kind is checked with each row.
"""

from collections.abc import Collection
from typing import Final

from millpond.adapters.kafka_streams.database import DEFAULT, WITH_TIMESTAMP, Database
from millpond.errors import KafkaStreamsStateError, MissingArgumentError, StoreKindError
from millpond.stores.specs.store_spec import StoreKind

_POSSIBLE: Final = {
    (False, True): (StoreKind.TIMESTAMPED_KEY_VALUE,),
    (True, True): (StoreKind.TIMESTAMPED_WINDOW,),
    (False, False): (StoreKind.KEY_VALUE, StoreKind.VERSIONED),
    (True, False): (StoreKind.WINDOW, StoreKind.SESSION),
}
"""The possible kinds, by whether there are segments, and whether there is the column family for timestamps."""

_KNOWN: Final = (DEFAULT, WITH_TIMESTAMP)

KINDS: Final = tuple(kind for kinds in _POSSIBLE.values() for kind in kinds)


def kind_of(store: str, databases: Collection[Database], segments: bool, wanted: StoreKind | None) -> StoreKind:
    """Return the kind of a store.

    Args:
        store: its name.
        databases: all its RocksDB directories.
        segments: whether they are segments of time.
        wanted: what the user says.

    Raises:
        ConfigurationError: the files do not tell the kind and the user has not given it, or they tell another.
        FormatError: there are column families that are not known.
        CorruptStoreError: not all directories have the same ones.
    """
    timed = {_has_timestamps(store, database) for database in databases}
    if len(timed) != 1:
        raise KafkaStreamsStateError(
            f"store {store!r}: some of its directories have the column family {WITH_TIMESTAMP}, others have not: "
            f"{', '.join(str(database.directory) for database in databases)}; start the application until it has "
            "opened all of them, and stop it"
        )
    possible = _POSSIBLE[segments, timed.pop()]
    names = " or ".join(kind.value for kind in possible)
    if wanted is None and len(possible) > 1:
        raise MissingArgumentError(f"store {store!r} is of kind {names}, its files do not tell; say it with --kind")
    if wanted is not None and wanted not in possible:
        raise StoreKindError(f"store {store!r} is of kind {names}, not {wanted.value}; its column families tell")
    return wanted or possible[0]


def _has_timestamps(store: str, database: Database) -> bool:
    unknown = sorted(set(database.families).difference(_KNOWN))
    if unknown or DEFAULT not in database.families:
        raise KafkaStreamsStateError(
            f"store {store!r}: {database.directory} has the column families {', '.join(database.families)}, and this "
            f"release of Millpond knows {' and '.join(_KNOWN)}; read it with a newer one"
        )
    return WITH_TIMESTAMP in database.families
