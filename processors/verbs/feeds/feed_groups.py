"""``FeedGroups``: takes what leaves groups and joins them into their aggregates, and forwards each group's last update.

Groups and values are read once and written once for all changes of a run. A group that its last row leaves is gone.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from millpond.errors import UnreadableRowError
from millpond.processors.aggregations.column_fold import Groups, known_states
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.change import ChangeType
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.tables.config import TableConfig
from millpond.processors.tables.update_cache import UpdateForwarder
from millpond.processors.verbs.feeds.group_aggregate import GroupAggregate
from millpond.processors.verbs.feeds.group_fold import GroupFold
from millpond.processors.verbs.feeds.group_values import GroupValues
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.specs.store_spec import StoreSpec
from millpond.stores.typed.timestamped_columns import TimestampedColumns


class FeedGroups(Operator):
    """Folds changes of packed rows, by the bytes of their groups.

    Args:
        calls: the calls; the first of them counts rows.
        values: the name of the store of values.
        spec: the spec of the store of states.
        config: the configuration of the table of the groups.
    """

    def __init__(self, calls: GroupAggregate, values: str, spec: StoreSpec, config: TableConfig) -> None:
        self._calls = calls
        self._values = values
        self._spec = spec
        self._config = config

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        keys, states = column_serde(self._spec.key_serde), column_serde(self._spec.value_serde)
        assert keys is not None
        assert states is not None
        self._states = context.store(self._spec.name)
        self._columns = TimestampedColumns(self._states, keys, states)
        self._fold = GroupFold(self._calls, GroupValues(context.store(self._values)))
        self._updates = UpdateForwarder(context, self._spec.key_serde, caching=True)

    def process(self, batch: Batch) -> None:
        news, olds = zip(*((change.new, change.old) for change in batch.values), strict=True)
        changes = ChangeType.of_values(pa.array(news, pa.binary()), pa.array(olds, pa.binary()))
        self.process_columns(Columns(pa.array(batch.keys, pa.binary()), changes, np.array(batch.timestamps, np.int64)))

    def process_columns(self, columns: Columns) -> None:
        changes, groups = columns.values.storage, Groups(columns.keys)
        order, before, known, _ = self._known(groups)
        new, old = changes.flatten()
        # Of one change the old row leaves first.
        rows = pa.concat_arrays([old, new])
        size = len(changes)
        places = np.stack([np.arange(size), np.arange(size, 2 * size)], axis=1).ravel()
        places = places[rows.is_valid().to_numpy(zero_copy_only=False)[places]]
        members = Groups(groups.keys, groups.numbers[places % size])
        signs = np.where(places < size, -1, 1)
        after = self._fold.after(members, rows.take(pa.array(places)), signs, before)
        latest = np.maximum(known, groups.latest(columns.timestamps))
        self._columns.put(groups.keys.take(order), after.take(order), latest[order.to_numpy()])
        self._updates.replaced(size - len(groups.keys))
        olds = before if self._config.send_olds else None
        self._updates.send_columns(Columns(groups.keys, after, latest, olds=olds))

    def _known(self, groups: Groups) -> Any:
        """Return the ``known_states`` of groups."""
        try:
            return known_states(self._columns, groups)
        except pa.ArrowInvalid as error:
            raise UnreadableRowError(
                f"store {self._spec.name!r}: the state of a group cannot be read: {error}"
            ) from error

    def flush(self) -> None:
        self._updates.flush()
