"""The thresholds from which on a state is a bad one.

Rule of this module: docs/doctor.md tells each of these numbers. Times are milliseconds.
"""

from typing import Final

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE

IN_A_ROW: Final = 5
"""The micro-batches one after the other in which a fault is no accident."""

SKEW_SHARE: Final = 0.5
"""One key has this share of an operator's records, in each of ``IN_A_ROW`` micro-batches ..."""
SKEW_RECORDS: Final = 1_000
"""... that have at least so many records."""

LAG_SPAN: Final = 10 * MINUTE
"""Lag grows for so long ..."""
LAG_POINTS: Final = 6
"""... as at least so many minutes with micro-batches tell, ..."""
LAG_RISE: Final = 0.1
"""... by this share of the time, or more, ..."""
LAG_BUSY: Final = 0.8
"""... while micro-batches take this share of the time, or more."""

SILENCE: Final = 5 * MINUTE
"""A run that is silent for so long has died; it tells every minute that it lives."""

STUCK: Final = 2 * MINUTE
"""A micro-batch whose tasks have been done for so long, and ..."""
STUCK_TIMES: Final = 10
"""... for so many times as long as the longest of those before took, and for longer than its tasks, is stuck."""

GROWTH_SPAN: Final = 48 * HOUR
"""State is looked at over so long, or longer, in four parts of the same length, ..."""
GROWTH_POINTS: Final = 16
"""... with at least so many hours or days in which micro-batches ran."""
GROWTH_LEAST: Final = 1.2
"""It grows without bound if the last part has so many times as much as the first, or more, ..."""
GROWTH_SLOWING: Final = 0.7
"""... and grows at this share of the pace of the first two, or faster, from the third to the last."""

DISK_USED: Final = 0.95
"""A disk of which this share is used is nearly full, ..."""
DISK_SOON: Final = 6 * HOUR
"""... as is one that will be full so soon, ..."""
DISK_SPAN: Final = HOUR
"""... by what was used of it in so long, or longer, ..."""
DISK_HALF: Final = 0.5
"""... if this share of it is used already."""

SLOW_FILE: Final = 1 * SECOND
"""Storage is slow if a task's durable file takes so long, or longer, on average, ..."""
SLOW_RATE: Final = 5_000_000
"""... at fewer bytes a second, ..."""
SLOW_SHARE: Final = 0.3
"""... and this share of the tasks' time, in each of ``IN_A_ROW`` micro-batches."""
SLOW_LOG: Final = 2 * SECOND
"""So is that of the checkpoint if Spark's two files of a micro-batch take so long in each of them."""

DATA_BATCHES: Final = 20
"""Rows are counted, and clocks are compared, over so many micro-batches."""
LATE_SHARE: Final = 0.01
"""There is much late data if this share of an operator's records is late, ..."""
LATE_LEAST: Final = 100
"""... and so many records are."""
POISON_LEAST: Final = 10
"""There are poison rows if so many cannot be used."""

CLOCK_BACK: Final = 1 * SECOND
"""The driver's clock has jumped if a micro-batch was begun so much before the one that it follows."""
CLOCK_AHEAD: Final = 5 * MINUTE
"""Records are from the future if stream time is so far ahead of the clock in ``IN_A_ROW`` micro-batches."""

LISTING_LAGS: Final = MINUTE
"""A listing lags if it lacks a micro-batch so long after its end, ..."""
LISTED: Final = 3
"""... or one that others follow and that follows so many others."""

STANDBY_AGE: Final = HOUR
"""A standby is forgotten if a copy was not brought on for so long, ..."""
STANDBY_BATCHES: Final = 16
"""... in which so many micro-batches were committed: then the copy has to be restored."""
