"""``AnyBatches``: a verb fed with its rows in many micro-batches, which must not change what it answers.

Rule of this module: it needs neither pytest nor Hypothesis; ``millpond.pytest_plugin`` makes it the fixture
``any_batches``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, TypeAlias

from millpond.processors.calls.arguments import INPUT, LEFT, RIGHT, named_tables
from millpond.processors.pond.micro_batches import MicroBatches
from millpond.processors.pond.pond import Pond, PondInBatches
from millpond.processors.verbs.projections import CHANGE_COLUMNS

Batch: TypeAlias = Sequence[Mapping[str, Any]]
"""The rows of one input that come in one micro-batch."""


def answer(running: MicroBatches, batches: Iterable[Batch | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that there are once a verb has been fed, whatever the micro-batches, in an order of their own.

    Args:
        running: the verb; it is closed then.
        batches: the rows of each micro-batch, or by input (``"left"``, ``"right"``) those of a join; those of a
            ``multi_join`` are ``{"tables": {...}}``.

    Returns:
        All rows that came out; of a change feed those that are there in the end, without the columns that tell of
        changes.
    """
    with running:
        found = []
        for batch in batches:
            given: dict[str, Any] = dict(batch) if isinstance(batch, Mapping) else {"rows": batch}
            if any(len(rows) for rows in given.values()):
                found += running.feed(**given).to_pylist()
        found += running.complete().to_pylist()
        if running.key is not None:
            last: dict[str, dict[str, Any]] = {}
            for row in sorted(found, key=lambda row: int(row["sequence"])):
                last[repr([row[name] for name in running.key])] = row
            there = (row for row in last.values() if row["op"] == "upsert")
            found = [{name: value for name, value in row.items() if name not in CHANGE_COLUMNS} for row in there]
    return sorted(found, key=repr)


class AnyBatches:
    """Feeds a verb with rows in micro-batches that are cut at random, again and again.

    Args:
        seed: decides how they are cut; the same for the same.
    """

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)

    def __call__(
        self,
        make: Callable[[PondInBatches], MicroBatches],
        rows: Batch | None = None,
        *,
        left: Batch | None = None,
        right: Batch | None = None,
        tables: Mapping[str, Batch] | None = None,
        in_order: bool = False,
        times: int = 20,
    ) -> list[dict[str, Any]]:
        """Return what a verb answers, if that is the same however its rows come.

        Args:
            make: makes the verb of ``Pond().in_batches``, which it is given.
            rows: of a verb on one input, as dicts.
            left, right: of a join.
            tables: of a ``multi_join``, by name.
            in_order: whether the rows of an input come in their order; otherwise in any, so that rows are late.
            times: how often they are cut.

        Returns:
            The rows that there are in the end, as ``answer`` gives them.

        Raises:
            AssertionError: two ways to come gave two answers; the message shows both, and the micro-batches.
        """
        given = {INPUT: rows, LEFT: left, RIGHT: right, **named_tables(tables)}
        arriving = [(role, row) for role, some in given.items() for row in some or ()]
        first = answer(make(Pond().in_batches), [_by_input(arriving)] if arriving else [])
        for _ in range(times):
            batches = [_by_input(one) for one in self._cut(arriving, in_order=in_order)]
            found = answer(make(Pond().in_batches), batches)
            if list(map(repr, found)) != list(map(repr, first)):
                shown = "\n".join(f"  {batch}" for batch in batches)
                raise AssertionError(
                    f"all rows in one micro-batch give\n  {first}\nand in these micro-batches\n{shown}\nthey give\n"
                    f"  {found}"
                )
        return first

    def _cut(self, arriving: Sequence[tuple[str, Any]], *, in_order: bool) -> list[list[tuple[str, Any]]]:
        """Return rows in micro-batches; inputs meet in any order."""
        places = self._random.sample(range(len(arriving)), len(arriving))
        if in_order:
            roles = [arriving[place][0] for place in places]
            waiting = {role: iter([row for one, row in arriving if one == role]) for role in roles}
            mixed = [(role, next(waiting[role])) for role in roles]
        else:
            mixed = [arriving[place] for place in places]
        bounds = sorted(self._random.randint(0, len(mixed)) for _ in range(self._random.randint(0, len(mixed))))
        return [mixed[start:stop] for start, stop in zip([0, *bounds], [*bounds, len(mixed)], strict=True)]


def _by_input(rows: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the rows of a micro-batch as ``feed`` takes them."""
    found: dict[str, Any] = {}
    for role, row in rows:
        if role in (INPUT, LEFT, RIGHT):
            found.setdefault("rows" if role == INPUT else role, []).append(row)
        else:
            found.setdefault("tables", {}).setdefault(role, []).append(row)
    return found
