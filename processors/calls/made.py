"""``MadeVerb``: a verb that was made of a call, with its inputs and its timing.

Rule of this module: it knows no verb by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias

from millpond.processors.calls.account import Account
from millpond.processors.calls.feeds import Feed
from millpond.processors.calls.readings import Read, key_names
from millpond.processors.calls.tables import Rows, Selection
from millpond.processors.verbs.projections import CHANGE_TIME, OP, SEQUENCE, ChangeColumns, Keys
from millpond.processors.verbs.verb import Verb
from millpond.stores.encoding.serdes import Serde


@dataclass(frozen=True)
class MadeVerb(Generic[Read]):
    """A verb and what it reads.

    Attributes:
        verb: the verb.
        selections: by topic, the columns that it reads.
        account: its timing.
        value_serde: reads packed values; None if processors take them as bytes.
        key: the key of the change feed that it puts out, if it is not the key of its first input.
    """

    verb: Verb
    selections: Mapping[str, Read]
    account: Account
    value_serde: Serde[Any] | None = None
    key: Sequence[str] | None = None

    @property
    def sources(self: "Made") -> dict[str, str]:
        """The source of the rows of each topic."""
        return {topic: selection.rows.source for topic, selection in self.selections.items()}

    @property
    def rows(self) -> Rows:
        """The rows that it puts out."""
        return Rows.of(self.verb.name, self.verb.schema, self.account.bounds, self.told)

    @property
    def feed(self) -> Sequence[str] | None:
        """The key of the change feed that it puts out; None if it puts out none."""
        first, *others = self.verb.parts
        if not any(isinstance(part, ChangeColumns) for part in others):
            return None
        if self.key is not None:
            return self.key
        # One task makes all windows of a key.
        return first.schema.names if isinstance(first, Keys) else key_names(next(iter(self.selections.values())))

    @property
    def row(self) -> Sequence[str]:
        """The columns by which rows of that feed replace each other: also a window or a rank, if a key has several."""
        return self.key or [name for part in self.verb.parts for name in part.identity]

    @property
    def told(self) -> Feed | None:
        """The change feed that it puts out; None if it puts out none."""
        if self.feed is None:
            return None
        return Feed(self.feed, True, self.row, OP, SEQUENCE, CHANGE_TIME)


Made: TypeAlias = MadeVerb[Selection]
"""A verb on tables."""
