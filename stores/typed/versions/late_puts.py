"""``LatePuts``: the treatment of versions that are older than a versioned store's grace period allows."""

from enum import StrEnum


class LatePuts(StrEnum):
    """The treatment of a version that is older than a versioned store's grace period.

    A version is valid until the next one of its key that the store knows. A delete is known as long as the history goes
    back: the store knows nothing of a key that was deleted before.
    """

    REFUSED = "refused"
    """It is not put (KIP-914)."""

    VALID = "valid"
    """It is put if it is valid at some time within the history."""

    VALID_FIRST = "valid first"
    """It is put if it is valid at some time within the history, unless the version that it would replace is of the same
    time: for callers that decide which of two versions of one time counts, but forget it with the history."""
