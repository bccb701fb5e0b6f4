"""An advice as one HTML page: the backend, the reasons, the measurements, and what would change the advice.

Rule of this module: it shows the document that ``millpond advise --json`` writes, and judges nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from millpond.bench.advice.tables import mix_of
from millpond.bench.numbers import size
from millpond.bench.pages.frame import machine_line, whole_page
from millpond.bench.pages.tables import Html, numbers, row_head, table, tag

TITLE: Final = "Which backend suits this job"
_BAR: Final = 110  # pixels
_HEADS: Final = ("read", "write of a row", "scan", "expiry", "the mix", "memory a row", "disk a row", "memory", "disk")


def advice_page(document: Mapping[str, Any]) -> str:
    """Return the whole page of what ``millpond.bench.report.document`` makes of an advice."""
    parts = [
        _advised(document),
        _measured(document),
        _listed("What would change this", (document["advice"] or {}).get("changes", ())),
        _listed("What the figures do not say", document["caveats"]),
        _listed("Taken from elsewhere, or assumed", document["assumed"]),
    ]
    return whole_page(TITLE, _header(document), tag("main", *(part for part in parts if part is not None)))


def _header(document: Mapping[str, Any]) -> Html:
    job = document["description"]
    data = size(job["keys"] * (job["key_bytes"] + job["value_bytes"]))
    lead = (
        f"{job['keys']:,} keys of {job['key_bytes']} and values of {job['value_bytes']} bytes, {data}; "
        f"{mix_of(job)}; commits of {job['batch']:,} rows; "
        f"{size(job['memory_bytes'])} of memory, {size(job['disk_bytes'])} of disk."
    )
    return tag(
        "header",
        tag("h1", TITLE),
        tag("p", lead, class_="lead"),
        tag("p", machine_line(document["machine"]), class_="dim"),
        tag("pre", tag("code", document["command"])),
    )


def _advised(document: Mapping[str, Any]) -> Html:
    advice = document["advice"]
    if advice is None:
        return tag("section", tag("h2", "Nothing that was measured fits"), _points(_refusals(document)), id="advice")
    reasons = [*advice["reasons"], *_refusals(document)]
    return tag("section", tag("h2", f"Use {advice['backend']}"), _points(reasons), id="advice")


def _refusals(document: Mapping[str, Any]) -> Iterator[str]:
    for one in document["backends"]:
        if not one["fits"]:
            yield f"Not {one['backend']}: {one['why_not']}."


def _measured(document: Mapping[str, Any]) -> Html:
    mixes = [one["per_operation_us"]["median"] for one in document["backends"] if one["per_operation_us"] is not None]
    rows = [_row(one, document["description"], max(mixes, default=0.0)) for one in document["backends"]]
    about = (
        "Microseconds of an operation, the median and from the least to the most; bytes of a row as they were "
        "measured, and what all rows need with the room that is left for them. Shorter bars are quicker."
    )
    found = table("What was measured", ["backend", *_HEADS, "fits"], rows)
    return tag("section", tag("h2", "Backends"), tag("p", about, class_="dim"), found, id="backends")


def _row(one: Mapping[str, Any], job: Mapping[str, Any], longest: float) -> Sequence[Html]:
    times, room = one["times"] or {}, one["room"]
    each = times.get("read"), times.get("write"), _scan(times, job["scan_rows"]), times.get("expire")
    mix = one["per_operation_us"]
    bar = Html("") if mix is None else tag("i", style=f"width:{_BAR * mix['median'] / longest:.1f}px")
    return [
        row_head(one["url"]),
        *numbers(map(_spread, each)),
        tag("td", _spread(mix), bar, class_="number rate"),
        *numbers(
            (
                "" if room is None or one["persistent"] else f"{room['memory_per_row']:,.0f}",
                "" if room is None or not one["persistent"] else f"{room['disk_peak_per_row']:,.0f}",
                size(one["memory_needed_bytes"]) if one["memory_needed_bytes"] else "",
                size(one["disk_needed_bytes"]) if one["disk_needed_bytes"] else "",
            )
        ),
        tag("td", "yes" if one["fits"] else "no"),
    ]


def _scan(times: Mapping[str, Any], rows: int) -> Mapping[str, float] | None:
    """Return a seek and a step for each further row."""
    seek, step = times.get("seek"), times.get("step")
    if seek is None or step is None:
        return None
    return {name: seek[name] + (rows - 1) * step[name] for name in ("median", "low", "high")}


def _spread(found: Mapping[str, float] | None) -> str:
    if found is None:
        return ""
    return f"{found['median']:,.2f} ({found['low']:,.2f} to {found['high']:,.2f})"


def _listed(title: str, lines: Sequence[str]) -> Html | None:
    return tag("section", tag("h2", title), _points(lines)) if lines else None


def _points(lines: Sequence[str] | Iterator[str]) -> Html:
    return tag("ul", *(tag("li", line) for line in lines))
