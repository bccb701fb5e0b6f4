"""``Pond``: verbs on Arrow tables and what becomes such, in this process.

Rule of this room: it knows tables, and neither Spark nor any library of data frames.
"""

from millpond.processors.calls.reports.batch_twin import Verification
from millpond.processors.calls.reports.grace_advice import GraceAdvice
from millpond.processors.pond.micro_batches import MicroBatches
from millpond.processors.pond.pond import Pond, PondInBatches
from millpond.processors.verbs.matching.explanation import MatchExplanation

__all__ = ["GraceAdvice", "MatchExplanation", "MicroBatches", "Pond", "PondInBatches", "Verification"]
