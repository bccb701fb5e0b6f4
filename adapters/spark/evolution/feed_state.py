"""Whether the state of an aggregate is that of rows that stay, or of a change feed: neither becomes the other."""

from millpond.errors import StateConflictError
from millpond.processors.verbs.aggregate import STORE
from millpond.processors.verbs.feeds.feed_aggregate import GROUPS
from millpond.stores.evolution.shape import Shape


def check_feed_state(verb: str, before: Shape | None, *, feed: bool) -> None:
    """Refuse to go on with the state of changes that count as rows where they are changes, and the other way round.

    Args:
        verb: the verb's name.
        before: the shape of the state that there is; None if there is none.
        feed: whether its rows are a change feed.

    Raises:
        StateConflictError: so it would.
    """
    if before is None or not before.named(STORE if feed else GROUPS):
        return
    if feed:
        raise StateConflictError(
            f"the verb {verb!r} reads a change feed, and its state counts each change as a row; to aggregate the rows "
            "that the feed describes, give the verb another name and a new checkpoint, or to go on counting changes, "
            "drop the feed's column with the operation before: .drop('op')"
        )
    raise StateConflictError(
        f"the verb {verb!r} reads rows that stay, and its state is that of a change feed, whose rows were replaced and "
        "deleted; keep the columns of the feed, or name them with op=... and key=..., or give the verb another name "
        "and a new checkpoint"
    )
