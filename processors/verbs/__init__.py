"""Verbs on rows of columns: joins, tables and aggregates as small topologies, and what they compute.

Rule of this room: it is on top of the DSL and knows Arrow, but no Spark. Times and durations are microseconds. What is
here stands on ``aggregates``, ``encoding``, ``functions`` and ``matching``; ``feeds``, ``joins``, ``ordered`` and
``rekeying`` stand on it.

Users write the functions of ``aggregates`` here, and a ``KeyedProcessor`` with its ``KeyContext``,
``Timer`` and ``TimerClock``.
"""

from millpond.processors.verbs import aggregates
from millpond.processors.verbs.key_timers import Timer, TimerClock
from millpond.processors.verbs.keyed_processor import KeyContext, KeyedProcessor, KeyState

__all__ = ["KeyContext", "KeyState", "KeyedProcessor", "Timer", "TimerClock", "aggregates"]
