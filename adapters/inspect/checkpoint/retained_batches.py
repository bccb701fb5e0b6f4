"""The micro-batches that a checkpoint retains, and why there may be nothing to read.

Rule of this module: with Spark or without it, a checkpoint is refused in the same words.
"""

from millpond.errors import ConfigurationError, MicroBatchNotKeptError, NoCheckpointError


def no_checkpoint(location: str) -> ConfigurationError:
    """Return the error for a place where no query has a checkpoint."""
    return NoCheckpointError(
        f"there is no checkpoint at {location}; give the query's checkpointLocation, and start the query first"
    )


def why_not_retained(location: str, batches: list[int], batch: int | None) -> ConfigurationError | None:
    """Return why a micro-batch cannot be read; None if it is there.

    Args:
        location: where the checkpoint is.
        batches: those that were committed and are retained, the first one first.
        batch: which one is wanted; None for the last one, whichever that is.
    """
    if not batches:
        return NoCheckpointError(
            f"the query with the checkpoint {location} has not committed a micro-batch yet; its stores can be read "
            "after the first one"
        )
    if batch is not None and batch not in batches:
        return MicroBatchNotKeptError(
            f"the checkpoint {location} has no micro-batch {batch}, only {batches[0]} to {batches[-1]}; look at one "
            "of these, of which Spark retains as many as spark.sql.streaming.minBatchesToRetain says"
        )
    return None
