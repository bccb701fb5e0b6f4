"""``EditReport``: the result of an edit for the state of one query."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from millpond.stores.evolution.editing import Edit
from millpond.stores.evolution.record import EditNote


@dataclass(frozen=True)
class EditReport:
    """An edit that counts from the next start of a query on.

    Attributes:
        application_id: the application, which for a verb ends with a dot and the verb's name.
        sink: the plain name of what the query writes.
        generation: of the state.
        batch: the micro-batch after which it was edited; None if there was none.
        note: who has edited it, and how much.
    """

    application_id: str
    sink: str
    generation: int
    batch: int | None
    note: EditNote

    @classmethod
    def of(cls, edit: Edit) -> Self:
        """Return the report of an edit whose record is kept."""
        history, record = edit.history, edit.record
        assert record.edit is not None, "it was not made by an edit"
        return cls(history.application_id, history.sink, record.generation, record.batch, record.edit)

    def lines(self) -> Iterator[str]:
        """Yield the report as text."""
        rows = ", ".join(f"{what}: {number} rows" for what, number in sorted(self.note.rows.items()))
        yield (
            f"{self.application_id}, {self.sink}: generation {self.generation}, after micro-batch {self.batch}, by "
            f"{self.note.by}; {rows}; the next start of the query goes on with it"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as an object of JSON."""
        place = {"application": self.application_id, "sink": self.sink}
        return {**place, "generation": self.generation, "batch": self.batch, **self.note.content}
