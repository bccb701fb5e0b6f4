"""The options of ``spark.read.format("millpond")``.

Rule of this module: options come as text, and one that is missing, unknown or no such thing is refused by its name.
What they name is looked for elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self

from millpond.adapters.inspect.selection import Selection
from millpond.adapters.inspect.store_form import StoreForm
from millpond.errors import InvalidOptionError, MissingArgumentError
from millpond.processors.options.known_names import did_you_mean
from millpond.stores.encoding.times import time_in

FORMAT: Final = "millpond"

_NEEDED: Final = {
    "checkpoint": "the query's checkpointLocation",
    "state_dir": "the job's state_dir",
    "store": "the store's name",
}
_NUMBERS: Final = ("batch", "changes_from")


@dataclass(frozen=True)
class StateOptions:
    """The options that a user has given.

    Attributes:
        checkpoint: the query's ``checkpointLocation``.
        state_dir: the job's ``state_dir``.
        store: the store's name.
        batch: after which micro-batch; None for the last one.
        sink: what the query writes, where several have such a store.
        application: the ``application_id``, where several have such a store.
        as_of: of a versioned store, the time whose versions are wanted; None for all.
        key_from: the first key; None for all from the beginning.
        key_to: the key before which to end; None for all to the end.
        changes_from: the micro-batch since which changes are wanted, instead of rows; None for rows.
    """

    checkpoint: str
    state_dir: str
    store: str
    batch: int | None = None
    sink: str | None = None
    application: str | None = None
    as_of: str | None = None
    key_from: str | None = None
    key_to: str | None = None
    changes_from: int | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Return the options as Spark has them.

        Raises:
            ConfigurationError: one is missing, unknown or no such thing.
        """
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise InvalidOptionError(
                    f"format {FORMAT!r} has no option {name!r}{did_you_mean(name, known)}; its options are "
                    f"{', '.join(known)}"
                )
        for name, what in _NEEDED.items():
            if not given.get(name):
                raise MissingArgumentError(
                    f"format {FORMAT!r} needs the option {name!r}, {what}; add .option({name!r}, ..)"
                )
        found: dict[str, Any] = {**given, **{name: _number(name, given[name]) for name in _NUMBERS if name in given}}
        return cls(**found)

    def selection(self, form: StoreForm) -> Selection:
        """Return which rows of a store are asked for.

        Raises:
            ConfigurationError: it has no such keys, or keeps no versions.
        """
        keys = {name: getattr(self, name) for name in ("key_from", "key_to")}
        parsed = {name: form.key.parse(text) for name, text in keys.items() if text is not None}
        for key in parsed.values():
            form.key.to_bytes(key)
        as_of = None if self.as_of is None else time_in(self.as_of, "as_of")
        if as_of is not None:
            form.instant(as_of)
        return Selection(**parsed, as_of=as_of)


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise InvalidOptionError(f"the option {name!r} is {text!r}; give the number of a micro-batch, such as 0")
    return int(text)
