"""The carriages of all layouts to other partitions, by name: ``millpond.stores.evolution`` asks a driver for them.

Rule of this module: it only gathers. A layout's carriage is defined where its bytes are coded, and a new layout gets an
entry here.
"""

from collections.abc import Mapping
from typing import Final

from millpond.processors.aggregations.carried_windows import WINDOWED_AGGREGATION_CARRIAGE
from millpond.processors.aggregations.windowed_processor import WINDOWED_AGGREGATION
from millpond.processors.runtime.current_record import TASK_TIME
from millpond.processors.runtime.punctuation import PUNCTUATION
from millpond.processors.runtime.tasks.stream_time_reset import RESET
from millpond.processors.streams.unpaired_rows import UNPAIRED_RECORDS, UNPAIRED_RECORDS_CARRIAGE
from millpond.processors.tables.foreign_key.messages import (
    FOREIGN_KEY_LEFT_ROWS,
    FOREIGN_KEY_LEFT_ROWS_CARRIAGE,
    FOREIGN_KEY_SUBSCRIPTIONS,
    FOREIGN_KEY_SUBSCRIPTIONS_CARRIAGE,
)
from millpond.processors.tables.suppress_buffer import SUPPRESS_BUFFER, SUPPRESS_BUFFER_CARRIAGE
from millpond.processors.tables.time_ordered_buffer import TIME_ORDERED_BUFFER, TIME_ORDERED_BUFFER_CARRIAGE
from millpond.processors.verbs.feeds.group_values import COUNTED_VALUES, COUNTED_VALUES_CARRIAGE
from millpond.processors.verbs.key_timers import KEYED_TIMERS, KEYED_TIMERS_CARRIAGE
from millpond.stores.evolution.carriage import NO_LAYOUT, LayoutCarriage, greatest

CARRIAGES: Final[Mapping[str, LayoutCarriage]] = {
    NO_LAYOUT: LayoutCarriage(rules={RESET: greatest, f"{PUNCTUATION}-*": greatest, f"{TASK_TIME}-*": greatest}),
    COUNTED_VALUES.name: COUNTED_VALUES_CARRIAGE,
    FOREIGN_KEY_LEFT_ROWS.name: FOREIGN_KEY_LEFT_ROWS_CARRIAGE,
    FOREIGN_KEY_SUBSCRIPTIONS.name: FOREIGN_KEY_SUBSCRIPTIONS_CARRIAGE,
    KEYED_TIMERS.name: KEYED_TIMERS_CARRIAGE,
    SUPPRESS_BUFFER.name: SUPPRESS_BUFFER_CARRIAGE,
    TIME_ORDERED_BUFFER.name: TIME_ORDERED_BUFFER_CARRIAGE,
    UNPAIRED_RECORDS.name: UNPAIRED_RECORDS_CARRIAGE,
    WINDOWED_AGGREGATION.name: WINDOWED_AGGREGATION_CARRIAGE,
}
