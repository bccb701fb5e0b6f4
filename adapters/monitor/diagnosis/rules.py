"""``diagnose``: all that is known to be wrong with a query.

Rule of this module: each rule is asked, and none knows of the others.
"""

from collections.abc import Callable, Mapping
from typing import Final

from millpond.adapters.monitor.diagnosis.figures import Figures
from millpond.adapters.monitor.diagnosis.finding import Finding, State
from millpond.adapters.monitor.diagnosis.lives import corrupt_copy, out_of_memory, query_died, stuck_sink
from millpond.adapters.monitor.diagnosis.loads import growing_lag, skewed_key, slow_storage
from millpond.adapters.monitor.diagnosis.room import disk_nearly_full, forgotten_standby, state_without_bound
from millpond.adapters.monitor.diagnosis.rows import clock_jumps, late_data, listing_lags, poison_rows

RULES: Final[Mapping[State, Callable[[Figures], Finding | None]]] = {
    State.OUT_OF_MEMORY: out_of_memory,
    State.CORRUPT_COPY: corrupt_copy,
    State.POISON: poison_rows,
    State.DIED: query_died,
    State.STUCK_SINK: stuck_sink,
    State.LISTING: listing_lags,
    State.DISK: disk_nearly_full,
    State.STATE: state_without_bound,
    State.LAG: growing_lag,
    State.SKEW: skewed_key,
    State.STORAGE: slow_storage,
    State.CLOCK: clock_jumps,
    State.LATE: late_data,
    State.STANDBY: forgotten_standby,
}
"""The rule of each state."""


def diagnose(figures: Figures) -> list[Finding]:
    """Return the states that a query is in, the worst one first; none if nothing is known to be wrong with it."""
    return [found for rule in RULES.values() if (found := rule(figures)) is not None]
