"""The pages of plots: the files of figures that have one, how they moved, and what is on the pages.

Rule of this module: the pages are those that ``millpond bench page`` and ``millpond bench history show`` make.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from millpond.bench.documents import BENCHMARKS, SCHEMA, read_document
from millpond.bench.history import History
from millpond.bench.pages.history import TITLE, history_page
from millpond.bench.pages.page import results_page

MOVED = "history/README.md"
MOVED_PLOTS = "history/plots.html"


def plots_name(path: Path) -> str | None:
    """Return the name of the page of plots beside the page of a file, nothing if there are none of its figures."""
    figures = json.loads(path.read_text())
    has_plots = isinstance(figures, dict) and figures.get("benchmark") in BENCHMARKS and figures.get("schema") == SCHEMA
    return f"{path.stem}-plots.html" if has_plots else None


def plots_page(path: Path) -> str:
    """Return the page of plots of a file.

    Raises:
        ConfigurationError: the file is not one of those that have plots, or the package that draws is not installed.
    """
    return results_page(read_document(path))


def moved_plots(histories: Sequence[History]) -> str:
    """Return the page of plots of all histories.

    Raises:
        ConfigurationError: the package that draws is not installed.
    """
    return history_page(histories)


def moved_page(histories: Sequence[History]) -> str:
    """Return the page that lists all histories, and leads to their plots."""
    lines = ["| run | measurements | first | last |", "|---|--:|---|---|"]
    for history in histories:
        run, entries = f"[{history.name}](../{history.name}.md)", history.entries
        lines.append(f"| {run} | {len(entries)} | {entries[0].date} | {entries[-1].date} |")
    about = (
        "The same benchmarks, measured again and again: [as plots, with what changed beyond the noise](plots.html). "
        "[Results of benchmarks](../../../docs/benchmarks.md#how-figures-move) says how this is judged, and how to "
        "keep such a history of your own."
    )
    return "\n\n".join([f"# {TITLE}", about, "\n".join(lines)]) + "\n"
