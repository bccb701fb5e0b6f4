"""The promises of an operator, by which a task may treat its records in other ways without anybody noticing.

Rule of this module: each promise is a sentence that holds or not, and none is the default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Promises:
    """The promises of one operator, settled by the end of its ``init``.

    ``gathers``, ``keeps_positions`` and ``at_flush`` are asked for before, and stay what they were when it was made.

    Attributes:
        repeatable: whether ``process`` has changed and forwarded nothing when it raises (``ProcessorContext.declare``).
        by_key: whether records of different keys may come in any order, if ``Batch.positions`` tells the order that
            they had. Then its work on a record depends only on earlier records of the same key, and changes only
            that key's state. What it forwards, it forwards at once: under the record's key, or else to sinks only; at
            its timestamp or a later one; and with its position.
        commutes: whether records of one key and time may come in any order: what it makes of them is the same.
        unordered: whether all records up to a flush may come in any order: what it forwards by then is the same for
            each key.
        at_flush: whether ``process`` only holds records back: it forwards nothing and touches no store before
            ``flush``. Then, and by ``advance``, it may do so; and if it ``looks_up`` stores with a history, before
            these forget.
        keeps_records: whether it forwards only what it makes at once of single records, under their own keys and
            timestamps.
        puts: the store, if there is one, that takes the records as they come, under their own keys, at their timestamps
            or later ones.
        looks_up: the stores that it only reads, at each record's key; true where it reads as of the
            timestamp.
        looks_ahead: how much newer than the records, at most, what it reads of these stores may be.
        looks_back: how much older than the records, at most, the times are as of which it reads these stores.
        fills: the store, if there is one, whose entries ``expire``.
        keeps_positions: whether it forwards at once, and at most one record for each, with the position of the one that
            came.
        record_by_record: whether its task has to take one record after the other (``ProcessorContext.declare``).
        gathers: whether it can keep what comes until ``settle``, and process it then in the order of positions,
            together with all that came to others that use its stores; records of one position as they came. It does so
            if ``context.gathers``: where the graph does not allow it, everything is processed as it comes.
    """

    repeatable: bool = False
    by_key: bool = False
    commutes: bool = False
    unordered: bool = False
    at_flush: bool = False
    keeps_records: bool = False
    puts: str | None = None
    looks_up: Mapping[str, bool] = field(default_factory=dict)
    looks_ahead: int = 0
    looks_back: int = 0
    fills: str | None = None
    keeps_positions: bool = False
    record_by_record: bool = False
    gathers: bool = False
