"""``LiveRuns``: the runs of queries in this process, kept for those who watch them from another process.

Rule of this module: it tells that a run is alive, and how it has ended, and nothing of what it does. What it writes is
small and seldom: soon after a run of a known query begins, or at its first micro-batch, once a minute after that, and
at its end.
"""

import logging
from dataclasses import dataclass, field
from threading import Lock, Thread
from time import sleep, time
from typing import Final
from weakref import ref

from millpond.adapters.monitor.kept.kept_progress import ProgressWriter
from millpond.errors import MillpondError
from millpond.masking import masked

EVERY: Final = 60_000
"""The milliseconds after which a run is noted as alive again; a reader may take a silent run for dead."""

_LOOK: Final = 5.0
_log: Final = logging.getLogger("millpond.spark.progress")


@dataclass
class _Live:
    query: str
    name: str | None
    started: int
    told: int
    ours: bool = False
    restarts: int = 0
    asked: bool = False


@dataclass
class LiveRuns:
    """The runs that have begun in this process and have not ended.

    Attributes:
        writer: keeps the records of the runs.
    """

    writer: ProgressWriter
    _live: dict[str, _Live] = field(default_factory=dict)
    _foreign: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        Thread(target=_beat, args=(ref(self),), name="millpond-alive", daemon=True).start()

    def begun(self, query: str, run: str, name: str | None, at: int) -> None:
        """Note that a run has begun, of a query that may not be one of Millpond's."""
        with self._lock:
            self._live.setdefault(run, _Live(query, name, at, at))

    def progressed(self, query: str, run: str, name: str | None, started: int) -> int:
        """Note that a run of a query of Millpond's has done a micro-batch that was begun at ``started``.

        Returns:
            How often the query was started again.
        """
        with self._lock:
            self._foreign.discard(run)
            live = self._live.setdefault(run, _Live(query, name, started, started))
            if not live.ours:
                live.name, live.ours = name, True
                self._tell(run, live, _now())
            return live.restarts

    def is_foreign(self, run: str) -> None:
        """Note a micro-batch without anything of Millpond's: if no other had any, the run is not one of ours."""
        with self._lock:
            if run in self._live and self._live[run].ours:
                return
            self._live.pop(run, None)
            self._foreign.add(run)

    def ended(self, query: str, run: str, failure: str | None) -> None:
        """Note that a run has ended.

        Args:
            query: the query's id.
            run: the run's.
            failure: what Spark tells of the error by which it has; None if there was none.
        """
        with self._lock:
            if run in self._foreign:
                self._foreign.remove(run)
                return
            at = _now()
            live = self._live.pop(run, None) or _Live(query, None, at, at)
            if failure is None and not live.ours:
                return  # nobody knows whose it was, and nothing went wrong
            try:
                self.writer.end(query)
                known = self.writer.runs(query).named(live.name)
                text = None if failure is None else masked(failure)
                self.writer.keep_runs(known.ended(run, live.started, at, text))
            except MillpondError as error:
                _log.warning("query %s: its end is not kept: %s", query, error)

    def beat(self, at: int) -> None:
        """Tell of each run that it is alive: once a minute, and as soon as one of a known query begins."""
        with self._lock:
            for run, live in self._live.items():
                if at - live.told >= EVERY or self._is_known(live):
                    self._tell(run, live, at)

    def _is_known(self, live: _Live) -> bool:
        """Return whether a new run belongs to a query that has told of other runs; asked once."""
        if live.asked or live.ours:
            return False
        live.asked = True
        try:
            return self.writer.runs(live.query).begun > 0
        except MillpondError:
            return False

    def _tell(self, run: str, live: _Live, at: int) -> None:
        live.told = at
        try:
            known = self.writer.runs(live.query).named(live.name).seen(run, live.started, at)
            live.restarts = known.restarts
            self.writer.keep_runs(known)
        except MillpondError as error:
            _log.warning("query %s: that it runs is not kept: %s", live.query, error)


def _beat(runs: "ref[LiveRuns]") -> None:
    """Say which runs are alive, as long as somebody listens to them."""
    while (living := runs()) is not None:
        living.beat(_now())
        del living
        sleep(_LOOK)


def _now() -> int:
    return round(time() * 1000)
