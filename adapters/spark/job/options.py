"""``JobOptions``: the settings of a job, made once for all that it runs, and checked; ``Upgrade``: KIP-258's.

Rule of this module: it sees what the user wrote and the session's settings, never state.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark.evolution.evolution import Evolution
from millpond.errors import ArgumentConflictError, InvalidArgumentError, InvalidTimeError, UpgradeFromError
from millpond.processors.options.known_names import choice
from millpond.processors.options.on_error import OnError
from millpond.releases import Release, older_release
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.options import parse_size
from millpond.stores.backend.registry import supplier
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.encoding.times import Duration, to_micros

DEFAULT_MAX_AHEAD: Final = "1 day"

BACKEND_CONF: Final = "spark.millpond.backend"
DEFAULT_BACKEND: Final = "rocksdb"

MEMORY_BUDGET_CONF: Final = "spark.millpond.memory_budget"

RETAINED_BATCHES_CONF: Final = "spark.sql.streaming.minBatchesToRetain"
DEFAULT_RETAINED_BATCHES: Final = 100
COMMITS_PER_BATCH: Final = 2
"""A micro-batch that is repeated commits again."""


@dataclass(frozen=True)
class Upgrade:
    """An upgrade of local copies that is being prepared; what it does is up to ``millpond.stores.durability``.

    Attributes:
        release: the release of Millpond whose formats stay in use, and which can read all that is written.
        mode: how the new ones are prepared.
    """

    release: Release
    mode: UpgradeMode

    @classmethod
    def of(cls, upgrade_from: str | None, upgrade_mode: str | None) -> Self | None:
        """Return the upgrade with these options; None without ``upgrade_from``, whichever the mode is (KIP-258).

        Raises:
            ConfigurationError: one of them is none that there is, or the mode is missing.

        >>> Upgrade.of("0.1.0", "in_place")
        Upgrade(release=Release(major=0, minor=1, patch=0), mode=<UpgradeMode.IN_PLACE: 'in_place'>)
        """
        mode = None if upgrade_mode is None else choice("upgrade_mode", upgrade_mode, UpgradeMode)
        if upgrade_from is None:
            return None
        release = older_release(upgrade_from)
        if mode is None:
            raise UpgradeFromError(
                f"upgrade_mode is {upgrade_mode!r}; with upgrade_from, give 'in_place' or 'roll_over', or leave "
                "both out to upgrade local copies when their tasks are first opened"
            )
        return cls(release, mode)


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """A job's options.

    Attributes:
        local_dir: where local copies are; None for a directory of Spark's own.
        partitions: how many tasks share the work; None for as many as the state has, or the session's default.
        backend: of stores that do not name one; None for the session's.
        on_error: what happens to a record that cannot be processed.
        max_ahead: how far a timestamp may be ahead of the wall clock, in microseconds; None for any distance.
        policy: when to write snapshots and what to retain; None for what the session calls for.
        reset_stream_time: the moment to which stream time is set back, in microseconds since 1970; None for none.
        evolution: what the user says of state that has another shape; None for nothing.
        checksums: whether the rows of stores have checksums, unless a store says otherwise.
        upgrade: from what local copies are being upgraded, and how; None if they are not.
        memory_budget: bytes for all stores of a worker; None for the session's.
        seeds: of a topology: the entries with which new stores begin, by the store's name.
        shares_operators: of verbs: whether those of a chain may share an operator.

    Raises:
        ConfigurationError: there are fewer partitions than one, or something is of another kind.
        UnknownBackendError, BackendNotInstalledError: there is no backend of that name, or it cannot be had.
    """

    local_dir: str | None
    partitions: int | None
    backend: str | BackendSupplier | None
    on_error: OnError
    max_ahead: int | None
    policy: DurabilityPolicy | None
    reset_stream_time: int | None
    evolution: Evolution | None
    checksums: bool
    upgrade: Upgrade | None
    memory_budget: int | None
    seeds: Mapping[str, DataFrame] = field(default_factory=dict)
    shares_operators: bool = True

    def __post_init__(self) -> None:
        if self.evolution is not None and not isinstance(self.evolution, Evolution):
            raise InvalidArgumentError(f"evolution is {self.evolution!r}; give Evolution({self.evolution!r})")
        if self.policy is not None and not isinstance(self.policy, DurabilityPolicy):
            raise InvalidArgumentError(
                f"policy is {self.policy!r}; give a DurabilityPolicy of millpond.stores.durability, or leave it out"
            )
        if self.local_dir is not None and (not isinstance(self.local_dir, str | Path) or not str(self.local_dir)):
            raise InvalidArgumentError(
                f"local_dir is {self.local_dir!r}; give the path of a directory, such as '/var/pond', or leave it out"
            )
        if self.partitions is not None and (not isinstance(self.partitions, int) or self.partitions < 1):
            raise InvalidArgumentError(f"partitions must be 1 or more, not {self.partitions!r}")
        for option, value in (("checksums", self.checksums), ("share_operators", self.shares_operators)):
            if not isinstance(value, bool):
                raise InvalidArgumentError(f"{option} is {value!r}, which is no bool; give True or False")
        if self.backend is not None:
            supplier(self.backend)

    def supplier(self, session: SparkSession) -> BackendSupplier:
        """Return the backend of stores that do not name one.

        Raises:
            UnknownBackendError, BackendNotInstalledError: there is none of that name, or it cannot be had.
        """
        return supplier(self.backend or session.conf.get(BACKEND_CONF, None) or DEFAULT_BACKEND)

    def budget(self, session: SparkSession) -> int | None:
        """Return the bytes for all stores of a worker; None for no limit.

        Raises:
            ConfigurationError: the session's are no size.
        """
        return self.memory_budget or size_of(session.conf.get(MEMORY_BUDGET_CONF, None), MEMORY_BUDGET_CONF)

    def retaining(self, session: SparkSession) -> DurabilityPolicy:
        """Return the policy, which retains all that Spark may go back to, or the default that does.

        Raises:
            ConfigurationError: it retains less.
        """
        policy, batches = self.policy, int(session.conf.get(RETAINED_BATCHES_CONF) or DEFAULT_RETAINED_BATCHES)
        needed = batches * COMMITS_PER_BATCH
        if policy is None:
            default = DurabilityPolicy()
            return replace(default, retained_commits=max(default.retained_commits, needed + batches // 2))
        if policy.retained_commits < needed:
            raise ArgumentConflictError(
                f"the policy retains {policy.retained_commits} commits, but {RETAINED_BATCHES_CONF} is {batches}: "
                f"Spark may go back by as many micro-batches of up to {COMMITS_PER_BATCH} commits; raise "
                f"retained_commits to {needed} or more, or lower that setting"
            )
        return policy


def distance_of(max_ahead: Duration | None) -> int | None:
    """Return how far a timestamp may be ahead, in microseconds.

    Raises:
        ConfigurationError: it is no duration, or negative.
    """
    micros = None if max_ahead is None else to_micros(max_ahead, "max_ahead")
    if micros is not None and micros < 0:
        raise InvalidTimeError(f"max_ahead is {max_ahead!r}; it must not be negative. None allows any distance")
    return micros


def size_of(size: str | int | None, option: str) -> int | None:
    """Return the bytes that an option says.

    Raises:
        ConfigurationError: it is no size.
    """
    try:
        found = parse_size(size) if isinstance(size, str) else size
    except ValueError as error:
        raise InvalidArgumentError(f"{option} is {size!r}, but must be {error}") from None
    if found is not None and (type(found) is not int or found < 1):
        raise InvalidArgumentError(f"{option} is {size!r}; give bytes, or text such as '512MiB', or leave it out")
    return found
