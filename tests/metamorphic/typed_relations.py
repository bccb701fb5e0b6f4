"""The answers of DuckDB to verbs once all rows are there: which rows make up each row of the result.

Rule of this module: DuckDB compares keys, of whatever type, and times; values never get there. A relation is a query
with the columns ``kid`` (the number of a row that has the key), ``k``, ``t``, ``del``, ``present`` (whether a join has
matched), windows, and one for each source with the number of its row, or, once aggregated, with a list of them in the
order of time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.metamorphic.oracle import How


@dataclass(frozen=True)
class Relation:
    """Rows of numbers of rows.

    Attributes:
        sql: the query.
        sources: whose rows they are made of.
        windowed: whether it has the columns ``ws`` and ``we``.
        ranked: whether it has the column ``rank``.
    """

    sql: str
    sources: tuple[str, ...]
    windowed: bool = False
    ranked: bool = False

    @property
    def columns(self) -> str:
        windows, ranks = ["ws", "we"] if self.windowed else [], ["rank"] if self.ranked else []
        return ", ".join(["kid", *windows, *ranks, *(f'"{one}"' for one in self.sources)])


def rows_of(source: str, key: str = "k") -> Relation:
    """Return the rows of a source; ``key`` is the column that is the key."""
    return Relation(f'select id as kid, {key} as k, t, del, true as present, id as "{source}" from {source}', (source,))


def newest(rows: Relation) -> Relation:
    """Return the last row of each key, unless it deletes it."""
    last = f"select * from ({rows.sql}) qualify row_number() over (partition by k order by t desc) = 1"
    return replace(rows, sql=f"select * from ({last}) where not del")


def where_present(rows: Relation) -> Relation:
    """Return the rows for which a join has found a match."""
    return replace(rows, sql=f"select * from ({rows.sql}) where present")


def asof(left: Relation, right: Relation, how: How) -> Relation:
    """Return each left row with the right row that was valid at its time, unless that is a delete."""
    places = ", ".join(f'case when found then r."{one}" end as "{one}"' for one in right.sources)
    ours = ", ".join(f'l."{one}"' for one in left.sources)
    sql = f"""
        with l as materialized (select *, row_number() over () as place from ({left.sql})), r as ({right.sql})
        select l.kid, l.k, l.t, false as del, r.kid is not null and not r.del as found, found as present,
            {ours}, {places}
        from l left join r on l.k = r.k and r.t <= l.t
        qualify row_number() over (partition by l.place order by r.t desc) = 1
    """
    where = "" if how == "left" else " where found"
    return Relation(f"select * exclude (found) from ({sql}){where}", (*left.sources, *right.sources))


def near(left: Relation, right: Relation, how: How, reach: tuple[int, int], time: str = "l") -> Relation:
    """Return the pairs of rows whose right one is at most so much older, and so much newer, than the left one."""
    on = f"l.k = r.k and r.t - l.t between -({reach[0]}) and {reach[1]}"
    if how in ("semi", "anti"):
        return replace(left, sql=f"select l.* from ({left.sql}) l {how} join ({right.sql}) r on {on}")
    ids = ", ".join([*(f'l."{one}"' for one in left.sources), *(f'r."{one}"' for one in right.sources)])
    sql = f"""
        select coalesce(l.kid, r.kid) as kid, coalesce(l.k, r.k) as k, {time}.t as t, false as del,
            l.kid is not null and r.kid is not null as present, {ids}
        from ({left.sql}) l {"full" if how == "outer" else how} join ({right.sql}) r on {on}
    """
    return Relation(sql, (*left.sources, *right.sources))


def tables(left: Relation, right: Relation, how: How) -> Relation:
    """Return two tables, joined by key."""
    key = "coalesce(l.kid, r.kid) as kid, coalesce(l.k, r.k) as k" if how == "outer" else "l.kid, l.k"
    return _joined(left, right, how, newest(left).sql, key, "l.k = r.k")


def by_foreign_key(left: Relation, foreign: str, right: Relation, how: How) -> Relation:
    """Return two tables, joined by a column of the source that the left one is of."""
    source = left.sources[0]
    named = f'(select {foreign} from {source} where id = n."{source}") as named'
    return _joined(left, right, how, f"select *, {named} from ({newest(left).sql}) n", "l.kid, l.k", "l.named = r.k")


def _joined(left: Relation, right: Relation, how: How, rows: str, key: str, on: str) -> Relation:
    """Return rows of the left table, with those of the right one."""
    ids = ", ".join([*(f'l."{one}"' for one in left.sources), *(f'r."{one}"' for one in right.sources)])
    join = {"inner": "inner", "left": "left", "right": "right", "outer": "full"}[how]
    sql = f"""
        select {key}, coalesce(greatest(l.t, r.t), l.t, r.t) as t, false as del,
            l.kid is not null and r.kid is not null as present, {ids}
        from ({rows}) l {join} join ({newest(right).sql}) r on {on}
    """
    return Relation(sql, (*left.sources, *right.sources))


def numbered(rows: Relation) -> Relation:
    """Return the rows, each with its number among those of its key, as windows of the first rows."""
    sql = f"select *, 0 as ws, row_number() over (partition by k order by t) as we from ({rows.sql})"
    return Relation(sql, rows.sources, windowed=True)


def grouped(rows: Relation) -> Relation:
    """Return all rows of each key."""
    return _grouped(f"select *, 0 as ws, max(t) over (partition by k) as we from ({rows.sql})", rows.sources)


def first(groups: Relation, n: int, *, descending: bool) -> Relation:
    """Return the first rows by time of each key, or key and window, or the last ones, with their ranks."""
    (source,) = groups.sources
    listed = f'list_reverse("{source}")' if descending else f'"{source}"'
    ranks = f'unnest(generate_series(1, least(len("{source}"), {n})))'
    each = f'select * exclude ("{source}"), {listed} as "{source}", {ranks} as rank from ({groups.sql})'
    sql = f'select * exclude ("{source}"), "{source}"[rank] as "{source}" from ({each})'
    return replace(groups, sql=sql, ranked=True)


def far_apart(rows: Relation, within: int) -> Relation:
    """Return the first row of each key, and each that is later by more than ``within`` than the last one taken."""
    numbered = f"select *, row_number() over (partition by k order by t) as n from ({rows.sql})"
    sql = f"""
        with recursive o as ({numbered}), f as (
            select *, t as since, true as taken from o where n = 1 union all
            select o.*, case when o.t - since > {within} then o.t else since end, o.t - since > {within}
            from f join o on o.k is not distinct from f.k and o.n = f.n + 1
        ) select * exclude (n, since, taken) from f where taken
    """
    return replace(rows, sql=sql)


def over(rows: Relation, last: int | None, within: int | None, offset: int) -> Relation:
    """Return each row, with those of its frame as ``frame``, and the one so many before it as ``earlier``."""
    (source,) = rows.sources
    frame = "rows unbounded preceding" if last is None else f"rows {last - 1} preceding"
    frame = frame if within is None else f"range {within} preceding"
    sql = f"""
        select *, list("{source}") over (partition by k order by t {frame}) as frame,
            lag("{source}", {offset}) over (partition by k order by t) as earlier from ({rows.sql})
    """
    return replace(rows, sql=sql, sources=(source, "frame", "earlier"))


def hopping(rows: Relation, size: int, step: int) -> Relation:
    """Return windows without their ends, from each multiple of the step on."""
    starts = f"unnest(generate_series(t // {step} * {step} - {(size - 1) // step * step}, t, {step}))"
    cut = f"select *, ws + {size} as we from (select *, {starts} as ws from ({rows.sql})) where t < ws + {size}"
    return _grouped(cut, rows.sources)


def sliding(rows: Relation, difference: int) -> Relation:
    """Return windows with their ends, which are times of rows, or which start right behind one; none is empty."""
    cut = f"""
        with r as materialized ({rows.sql}), w as (
            select distinct k, unnest([t - {difference}, t + 1]) as ws from r
        ) select r.*, ws, ws + {difference} as we from r join w on r.k is not distinct from w.k
        and r.t between ws and ws + {difference}
    """
    return _grouped(cut, rows.sources)


def sessions(rows: Relation, gap: int, length: int = 1 << 60) -> Relation:
    """Return rows no further apart than the gap, which is part of the window, and in one piece of such a length."""
    apart = f"t - lag(t) over w > {gap} or t // {length} > lag(t) over w // {length}"
    first = f"select *, coalesce({apart}, true) as first from ({rows.sql}) window w as (partition by k order by t)"
    placed = f"select *, sum(first::int) over (partition by k order by t) as place from ({first})"
    cut = f"""
        select *, min(t) over w as ws, least(max(t) over w + {gap}, (t // {length} + 1) * {length}) as we
        from ({placed}) window w as (partition by k, place)
    """
    return _grouped(cut, rows.sources)


def _grouped(cut: str, sources: Sequence[str]) -> Relation:
    lists = ", ".join(f'list("{one}" order by t) as "{one}"' for one in sources)
    sql = f"""
        select min(kid) as kid, any_value(k) as k, ws, we, we as t, false as del, true as present, {lists}
        from ({cut}) group by k, ws, we
    """
    return Relation(sql, tuple(sources), windowed=True)
