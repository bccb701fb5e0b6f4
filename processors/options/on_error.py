"""``OnError``: the policy for records that cannot be processed."""

from enum import StrEnum
from typing import Self

from millpond.processors.options.known_names import choice


class OnError(StrEnum):
    """The policy for a record that cannot be processed: one that is unusable, or for which a user's function fails."""

    FAIL = "fail"
    """The micro-batch fails with an error that names the record; nothing of it is committed."""

    SKIP = "skip"
    """The record is left out and counted."""

    DEAD_LETTER = "dead-letter"
    """The record is left out and counted, and kept with the reason among the dead letters."""

    @classmethod
    def of(cls, on_error: "str | OnError") -> Self:
        """Return the policy of that name.

        Raises:
            ConfigurationError: there is none.
        """
        return choice("on_error", on_error, cls)
