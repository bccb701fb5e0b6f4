"""Random jobs of verbs over keys and values of all types, run as streams that die and are restarted, beside DuckDB.

``python -m tests.metamorphic.random_verbs --seconds 3600`` goes on for an hour; ``--help`` tells the rest. A difference
is told with the fewest rows that still show it.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa

from tests.metamorphic.histories import SECOND, Event, Way, answer_of
from tests.metamorphic.typed_jobs import FAMILIES, Draft, Job
from tests.metamorphic.typed_values import KEYS, Kind, bits, key_bits
from tests.processors.verbs.duck import answered

MOST = 12
"""Rows of a source."""


@dataclass(frozen=True)
class Case:
    """A job, its rows, and a way in which they come.

    Attributes:
        family: of the job.
        number: of the job.
        events: the rows.
        way: how they come.
    """

    family: str
    number: int
    events: Sequence[Event]
    way: Way

    @property
    def job(self) -> Job:
        return FAMILIES[self.family](Draft(self.number))


def random_case(number: int, families: Sequence[str] = tuple(FAMILIES)) -> Case:
    """Return the case of a number: of so many in a row, each type is the key once, and each family meets all types."""
    turn, place = divmod(number, len(KEYS))
    family = families[(turn + place) % len(families)]
    draft = Draft(number)
    job, random = FAMILIES[family](draft), Random(number + 1)
    chosen = {kind.name: _chosen(kind, random) for kind in (draft.key, draft.primary)}
    events: list[Event] = []
    for source in job.chain.schemas:
        events += _rows(source, draft, job, chosen, random, len(events))
    return Case(family, number, events, _way(random))


def _chosen(kind: Kind, random: Random) -> list[Any]:
    """Return the few values that keys have, so that they meet."""
    return [*kind.neighbors(4, random), None]


def _rows(
    source: str, draft: Draft, job: Job, chosen: Mapping[str, list[Any]], random: Random, first: int
) -> list[Event]:
    """Return rows of a source, no two of one key and time."""
    schema, taken, found = job.chain.schemas[source], set(), list[Event]()
    keys = {name: kind for name, kind in (("k", draft.key), ("p", draft.primary)) if name in schema.names}
    drawing = [kind.neighbors(3, random) for kind in draft.kinds[source]]
    deciding = "p" if "p" in keys else "k"
    for _ in range(random.randint(0, MOST)):
        second = random.randint(0, 40)
        drawn = {name: random.choice(chosen[kind.name]) for name, kind in keys.items()}
        place = key_bits(drawn[deciding], keys[deciding]), second
        if place in taken or (drawn[deciding] is None and source in job.without_nulls):
            continue
        taken.add(place)
        at, number = (1_000 + second) * SECOND, first + len(found)
        values = {
            f"{source}v{column}": None if random.random() < 0.2 else random.choice(some)
            for column, some in enumerate(drawing)
        }
        op = {f"{source}o": random.choice(["upsert", "upsert", "delete"])} if source in job.with_op else {}
        found.append(Event(source, at, {f"{source}id": number, **drawn, f"{source}t": at, **values, **op}))
    return found


def _way(random: Random) -> Way:
    return Way(
        seed=random.getrandbits(32),
        batches=random.randint(0, 6),
        splits=random.randint(1, 4),
        partitions=tuple(random.choice([1, 1, 2, 3, 8]) for _ in range(random.randint(1, 3))),
        deaths=random.choice([0.0, 0.3, 0.6]),
        backend=random.choice([*["memory"] * 4, "lmdb", "rocksdb", None]),
        restarts=random.choice([0.3, 0.6, 1.0]),
    )


def expected(job: Job, events: Sequence[Event], schema: pa.Schema) -> Counter[tuple[bytes, ...]]:
    """Return the rows that DuckDB says there have to be, as bits."""
    names = job.answer.columns
    found = answered(f"select {names} from ({job.answer.sql})", **_numbers(job, events))
    rows = [dict(zip(names.replace('"', "").split(", "), row, strict=True)) for row in found]
    known = {event.row[f"{event.source}id"]: event for event in events}
    columns = [
        pa.array([getter(row, known) for row in rows], schema.field(name).type) for name, getter in job.columns.items()
    ]
    return Counter(bits(pa.Table.from_arrays(columns, names=list(job.columns))))


def _numbers(job: Job, events: Sequence[Event]) -> dict[str, pa.Table]:
    """Return DuckDB's view of the rows of each source."""
    found = {}
    for source, schema in job.chain.schemas.items():
        rows = [event.row for event in events if event.source == source]
        keys = [name for name in ("k", "p") if name in schema.names]
        columns: dict[str, Any] = {
            "id": pa.array([row[f"{source}id"] for row in rows], pa.int64()),
            "t": pa.array([row[f"{source}t"] for row in rows], pa.int64()),
            "del": pa.array([row.get(f"{source}o") == "delete" for row in rows], pa.bool_()),
        }
        columns |= {name: pa.array([row[name] for row in rows], schema.field(name).type) for name in keys}
        found[source] = pa.table(columns)
    return found


def answer(case: Case, job: Job) -> Counter[tuple[bytes, ...]]:
    """Return what comes out of the verbs, as bits."""
    delays = {source: delay * SECOND for source, delay in job.delays.items()}
    tables = answer_of(job.chain, case.events, delays, case.way).tables
    names = list(job.columns)
    if not job.keys:
        return Counter(row for table in tables for row in bits(table.select(names)))
    last: dict[tuple[bytes, ...], tuple[int, str, tuple[bytes, ...]]] = {}
    for table in tables:
        changes: Any = (table["sequence"].to_pylist(), table["op"].to_pylist(), bits(table.select(names)))
        for key, change in zip(bits(table.select(job.keys)), zip(*changes, strict=True), strict=True):
            if key not in last or last[key][0] < change[0]:
                last[key] = change
    return Counter(row for _, op, row in last.values() if op == "upsert")


def difference(case: Case) -> str | None:
    """Return how the answer differs from DuckDB's; None if it does not."""
    job = case.job
    schema = job.chain.verbs[-1].rows.schema
    wanted, got = expected(job, case.events, schema), answer(case, job)
    if wanted == got:
        return None
    names = list(job.columns)
    return f"missing {_shown(wanted - got, names)}\nnot expected {_shown(got - wanted, names)}"


def _shown(rows: Counter[tuple[bytes, ...]], names: Sequence[str]) -> str:
    return "; ".join(
        ", ".join(f"{name}={value.hex()}" for name, value in zip(names, row, strict=True)) for row in rows.elements()
    )


def failure(case: Case) -> str | None:
    """Return the difference, or the error that there was instead of an answer."""
    try:
        return difference(case)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def smallest(case: Case) -> Case:
    """Return the case with as few rows, and as plain a way, as still differ in the same manner."""
    kind = _kind(failure(case))
    found = True
    while found:
        found = False
        for smaller in _smaller(case):
            if _kind(failure(smaller)) == kind:
                case, found = smaller, True
                break
    return case


def _kind(found: str | None) -> str | None:
    return None if found is None else found.partition(" ")[0] if "Error" in found else "differs"


def _smaller(case: Case) -> Iterator[Case]:
    plain = Way(case.way.seed, 1, 1, (1,))
    for way in (plain, replace(plain, batches=0), replace(case.way, deaths=0.0), replace(case.way, restarts=0.0)):
        if way != case.way and case.way != plain:
            yield replace(case, way=way)
    for place in range(len(case.events)):
        yield replace(case, events=[*case.events[:place], *case.events[place + 1 :]])


def report(case: Case) -> str:
    """Return a case made small, as one can read it and run it again."""
    small = smallest(case)
    rows = [f"  {event.source}: {dict(event.row)}" for event in small.events]
    draft = Draft(case.number)
    keys = f"{draft.key.name} ({draft.primary.name})"
    lines = [f"case {case.number} ({case.family}, key {keys}) differs:", failure(small) or "", *rows, f"  {small.way}"]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Compare, and tell what differs; 1 if anything does."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the number of the first case")
    parser.add_argument("--cases", type=int, help="end after so many cases")
    parser.add_argument("--seconds", type=float, help="end after so many seconds")
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="only this one; may be repeated")
    chosen = parser.parse_args(arguments)
    end = None if chosen.seconds is None else time.monotonic() + chosen.seconds
    done = differing = 0
    while (chosen.cases is None or done < chosen.cases) and (end is None or time.monotonic() < end):
        case = random_case(chosen.seed + done, chosen.family or list(FAMILIES))
        done += 1
        if failure(case) is not None:
            differing += 1
            print(report(case), flush=True)
    print(f"{done} cases, {differing} differences")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
