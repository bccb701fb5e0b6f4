"""Histories of benchmarks as one HTML page: what moved, when and how it was measured, and how each figure moved.

Rule of this module: it shows what ``millpond.bench.history`` finds, and judges nothing.
"""

from collections.abc import Sequence
from typing import Final

from millpond.bench.compare import Verdict
from millpond.bench.history import Figure, History, Step, moved
from millpond.bench.numbers import counted, shown
from millpond.bench.pages.drawing import require_drawing
from millpond.bench.pages.frame import machine_line, plot, whole_page
from millpond.bench.pages.marks import Looks
from millpond.bench.pages.moves import moves
from millpond.bench.pages.tables import Html, numbers, row_head, table, tag

TITLE: Final = "How the figures moved"
_ABOUT = (
    "A point is the median of the runs of a measurement, and the bar on it goes from the slowest run to the fastest. "
    "A line joins two measurements that were taken alike; where machine, packages or settings differ, there is none, "
    "and nothing is judged. A ratio goes on over another machine, since both its sides have shared it. Its bar goes "
    "from the slowest run beside the peer's fastest one to the other way round, and 1 is the dotted line. Processor "
    "time has one value a measurement, and is not judged."
)
_JUDGED = (
    "Beyond the noise means: no run of the one measurement lies among the runs of the other, and the ratio of the "
    "medians exceeds the greater spread of the two. The rule is that of millpond bench compare, and no test of "
    "significance. Two measurements on a shared machine may differ by half: ratios say more."
)


def history_page(histories: Sequence[History]) -> str:
    """Return the whole page. Histories of one measurement are named.

    Raises:
        ConfigurationError: the package that draws is not installed.
    """
    require_drawing()
    found = [(history, history.figures()) for history in histories if len(history.entries) > 1]
    sections = [_history(history, figures, f"h{number}") for number, (history, figures) in enumerate(found)]
    alone = [history for history in histories if len(history.entries) == 1]
    parts = [_overview(found), _moved(found), *sections, _alone(alone)]
    return whole_page(TITLE, _header(histories), tag("main", *(part for part in parts if part is not None)))


def _header(histories: Sequence[History]) -> Html:
    days = sorted(entry.date for history in histories for entry in history.entries)
    span = f", {days[0]} to {days[-1]}" if days else ""
    lead = f"{counted(len(histories), 'benchmark')}, {counted(len(days), 'measurement')}{span}."
    return tag(
        "header",
        tag("h1", TITLE),
        tag("p", lead, class_="lead"),
        tag("p", _ABOUT, class_="dim"),
        tag("p", _JUDGED, class_="dim"),
    )


def _overview(found: Sequence[tuple[History, list[Figure]]]) -> Html:
    """Return what is said of all figures of each history in its last measurement."""
    rows = []
    for number, (history, figures) in enumerate(found):
        place = len(history.entries) - 1
        last = [step for figure in figures for step in figure.steps[1:] if step.place == place]
        counts = [sum(step.verdict is verdict for step in last) for verdict in (*Verdict, None)]
        row = [_link(history, number), *numbers([str(len(history.entries))]), tag("td", history.day(place))]
        rows.append([*row, *numbers(map(str, counts))])
    heads = ["benchmark", "measurements", "last", *map(str, Verdict), "not measured alike"]
    inside = table("Figures of the last measurement beside the one before", heads, rows)
    return tag("section", tag("h2", "Last moves"), inside, id="last")


def _link(history: History, number: int) -> Html:
    return row_head(tag("a", history.name, href=f"#h{number}"))


def _moved(found: Sequence[tuple[History, list[Figure]]]) -> Html:
    beyond = [(number, history, *move) for number, (history, figures) in enumerate(found) for move in moved(figures)]
    newest_first = sorted(beyond, key=lambda one: one[1].entries[one[4].place].date, reverse=True)
    rows = [
        [
            _link(history, number),
            tag("td", figure.workload, class_="name"),
            tag("td", figure.name, class_="name"),
            *(tag("td", history.day(step.place)) for step in (before, after)),
            *numbers([shown(before.found.median), shown(after.found.median)]),
            *numbers([f"{shown(after.found.median / before.found.median)}x"]),
            tag("td", tag("b", "slower") if after.verdict is Verdict.SLOWER else str(after.verdict), class_="long"),
        ]
        for number, history, figure, before, after in newest_first
    ]
    heads = ["benchmark", "workload", "figure", "from", "to", "before", "after", "after/before", ""]
    inside = table("Changes beyond the noise, the newest first", heads, rows) if rows else tag("p", "Nothing.")
    about = "Throughputs are per second. With a slash, a figure is how many times as fast as a peer in the same run."
    return tag("section", tag("h2", "Beyond the noise"), tag("p", about, class_="dim"), inside, id="moved")


def _history(history: History, figures: Sequence[Figure], place: str) -> Html:
    latest = history.entries[-1].document
    newest_first = [one for entry in reversed(history.entries) for one in entry.document.contenders]
    looks = Looks(list({one.label: one for one in newest_first}.values()))
    costs, parts = history.costs(), list[Html]()
    for number, workload in enumerate(dict.fromkeys(figure.workload for figure in figures)):
        own, spent = ([one for one in found if one.workload == workload] for found in (figures, costs))
        plots = [
            plot(chart, f"{history.name}, {workload}", f"{place}-{number}-{chart.name}")
            for chart in moves(history, own, spent, looks)
        ]
        parts += [tag("h3", workload), tag("div", *plots, class_="plots")]
    return tag(
        "section",
        tag("h2", history.name),
        tag("p", machine_line(latest.machine), class_="dim"),
        tag("pre", tag("code", latest.command)),
        _measurements(history, figures),
        *parts,
        id=place,
    )


def _measurements(history: History, figures: Sequence[Figure]) -> Html:
    rows = [
        [
            row_head(history.day(place)),
            tag("td", entry.document.version),
            *numbers([str(sum(step.verdict is not None and step.place == place for step in _steps(figures)))]),
            tag("td", _unlike(figures, place), class_="long"),
        ]
        for place, entry in enumerate(history.entries)
    ]
    heads = ["measured on", "Millpond", "figures judged", "not measured alike as before"]
    return table(f"The measurements of {history.name}", heads, rows)


def _unlike(figures: Sequence[Figure], place: int) -> str:
    """Return what differs from the measurements before, of any figure."""
    found = [one for step in _steps(figures) if step.place == place for one in step.differences]
    return "; ".join(dict.fromkeys(f"{one.what}: {one.old} -> {one.new}" for one in found))


def _steps(figures: Sequence[Figure]) -> list[Step]:
    return [step for figure in figures for step in figure.steps]


def _alone(histories: Sequence[History]) -> Html | None:
    if not histories:
        return None
    rows = [[row_head(one.name), tag("td", one.entries[0].date)] for one in histories]
    about = table("A second measurement shows what moves", ["benchmark", "measured on"], rows)
    return tag("section", tag("h2", "Measured once"), about, id="once")
