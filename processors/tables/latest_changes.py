"""The updates of a table that change what it shows: not those that come too late to be their key's latest (KIP-914)."""

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.operators.operator import Operator
from millpond.processors.runtime.operators.promises import Promises


class LatestChanges(Operator):
    """Passes on the updates that are their key's latest and give it another value. It needs the values before them."""

    promises = Promises(by_key=True, keeps_records=True)

    def process(self, batch: Batch) -> None:
        assert batch.olds is not None
        changed = [
            batch.latest_at(i) and value != old
            for i, (value, old) in enumerate(zip(batch.values, batch.olds, strict=True))
        ]
        kept = batch.select(changed)
        self.context.forward(kept.with_values(kept.values))
