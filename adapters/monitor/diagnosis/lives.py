"""Rules of a query's life and end: died, out of memory, damaged files, a sink that does not return.

Rule of this module: a rule is a function of figures alone. An error is told once, by the rule that knows most of it.
"""

import re
from collections.abc import Mapping
from statistics import median
from typing import Final

from millpond.adapters.monitor.diagnosis import thresholds as at_least
from millpond.adapters.monitor.diagnosis import units
from millpond.adapters.monitor.diagnosis.figures import Figures
from millpond.adapters.monitor.diagnosis.finding import Finding, State
from millpond.adapters.monitor.kept.runs import Run

_MEMORY: Final = re.compile(
    r"OutOfMemory|MemoryError|out of memory|\bOOM(?:Killed)?\b|exit code:? 137|exceeding (?:physical )?memory|"
    r"Cannot allocate memory",
    re.IGNORECASE,
)
_DAMAGE: Final = re.compile(r"Corrupt(?:Store|File)Error")
_RECORD: Final = re.compile(r"\b(?:RecordError|InvalidValueError|UserFunctionError|SerdeError)")

_KNOWN: Final[Mapping[State, re.Pattern[str]]] = {
    State.OUT_OF_MEMORY: _MEMORY,
    State.CORRUPT_COPY: _DAMAGE,
    State.POISON: _RECORD,
}
_ADVICE: Final[Mapping[State, str]] = {
    State.OUT_OF_MEMORY: "give executors more memory (spark.executor.memoryOverhead is that of Python workers), or "
    "stores a backend with files and a memory_budget; then start the query again",
    State.CORRUPT_COPY: "start the query again, which restores a damaged copy; if it ends again, run millpond state "
    "verify, and millpond state repair",
    State.POISON: 'correct the rows or the function, or leave such rows out with on_error="dead-letter"; then start '
    "the query again",
    State.DIED: "see to what the error says, and start the query again with the same checkpoint",
}


def ended_by(state: State, figures: Figures) -> Finding | None:
    """Find that the last run ended by an error of a state; None if by none, or by one of another state."""
    run = figures.run
    if run is None or run.ended is None or run.error is None or _state_of(run) is not state:
        return None
    restarts = f", started again {units.times(figures.runs.restarts)}" if figures.runs.restarts else ""
    return Finding(
        state,
        f"the query ended {units.duration(figures.at - run.ended)} ago{restarts} by {_told(run)}",
        run.ended,
        _ADVICE[state],
    )


def _state_of(run: Run) -> State:
    return next((state for state, words in _KNOWN.items() if words.search(_told(run))), State.DIED)


def _told(run: Run) -> str:
    """Return the error, and what it says, if anything."""
    return f"{run.error}: {run.message}" if run.message else str(run.error)


def out_of_memory(figures: Figures) -> Finding | None:
    """Find that the last run ended because a process had no memory left."""
    return ended_by(State.OUT_OF_MEMORY, figures)


def corrupt_copy(figures: Figures) -> Finding | None:
    """Find that the last run ended because files of its state are damaged."""
    return ended_by(State.CORRUPT_COPY, figures)


def query_died(figures: Figures) -> Finding | None:
    """Find that the last run ended by an error that no other rule knows, or that it is not heard of any more."""
    told = ended_by(State.DIED, figures)
    if told is not None:
        return told
    run, heard = figures.run, figures.heard
    if run is None or heard is None or figures.ended or figures.at - heard < at_least.SILENCE:
        return None
    found = figures.open_batch
    batch = "" if found is None else f", in micro-batch {found.number}, which is not committed"
    return Finding(
        State.DIED,
        f"nobody has heard of the query for {units.duration(figures.at - heard)}{batch}; it told every minute that it "
        "ran, and nobody has told of its end: its driver was killed, or cannot write what watch(spark, keep=...) keeps",
        heard,
        "look whether its driver runs, and why it ended; start the query again with the same checkpoint",
    )


def _ended(figures: Figures) -> set[int]:
    """Return the micro-batches of the last run whose end was told, whatever the storage lists."""
    return {one.batch for one in figures.batches if figures.run is not None and one.run == figures.run.run}


def stuck_sink(figures: Figures) -> Finding | None:
    """Find that all tasks are done and the driver lives, but the micro-batch is not committed."""
    found, heard = figures.open_batch, figures.heard
    if found is None or heard is None or figures.ended or figures.at - heard >= at_least.SILENCE:
        return None
    if found.done_at is None or found.done < found.partitions or found.number in _ended(figures):
        return None
    took = [one.took for one in figures.batches]
    waits, most = figures.at - found.done_at, max(took, default=0)
    if waits < max(at_least.STUCK, at_least.STUCK_TIMES * most, found.done_at - found.since):
        return None
    usual = f"; micro-batches took {units.duration(median(took))}, {units.duration(most)} at the most" if took else ""
    return Finding(
        State.STUCK_SINK,
        f"all {found.partitions} tasks of micro-batch {found.number} were done {units.duration(waits)} ago, and it is "
        f"not committed, although the driver lives{usual}",
        found.done_at,
        "look at what writes the results: a function of foreachBatch, a table's lock, a connection without a timeout",
    )
