"""The pages of plots: the files of figures that have one, and its content.

Rule of this module: the page is the one that ``millpond bench page`` makes.
"""

import json
from pathlib import Path

from millpond.bench.documents import BENCHMARKS, SCHEMA, read_document
from millpond.bench.pages.page import results_page


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
