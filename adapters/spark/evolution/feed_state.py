"""The check that a verb does not go on with state that counts changes as rows if its rows are a change feed."""

from millpond.errors import CallChangedError
from millpond.processors.verbs.aggregate import STORE
from millpond.stores.evolution.shape import Shape


def check_feed_state(verb: str, before: Shape | None, *, feed: bool) -> None:
    """Refuse to go on with a state of changes that count as rows where they are changes of rows.

    Args:
        verb: the verb's name.
        before: the shape of the state that there is; None if there is none.
        feed: whether its rows are a change feed.

    Raises:
        StateConflictError: so it would.
    """
    if feed and before is not None and before.named(STORE):
        raise CallChangedError(
            f"the verb {verb!r} reads a change feed, and its state counts each change as a row; to aggregate the rows "
            "that the feed describes, give the verb another name, drop the old one, and go on at another checkpoint: "
            f"evolution=Evolution(checkpoint, into=new, dropped=[{verb!r}]). To go on counting changes, drop the "
            "feed's operation before: .drop('op')"
        )
