"""The frame of all pages: one file that needs nothing else, in the colors of the reader's system, light or dark.

Rule of this module: it knows no figures.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millpond.bench.pages.drawing import drawn
from millpond.bench.pages.marks import Chart
from millpond.bench.pages.tables import Html, tag


def whole_page(title: str, header: Html, main: Html) -> str:
    """Return the page.

    Args:
        title: its name in a browser.
        header: the element at its top.
        main: the element with its sections.
    """
    style = Html((Path(__file__).parent / "page.css").read_text(encoding="utf-8"))
    head = tag(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'),
        tag("title", f"{title} - Millpond"),
        tag("style", style),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', header, main), lang='en')}\n"


def plot(chart: Chart, of: str, name: str) -> Html:
    """Return the element of a plot, with its title; ids in it begin with ``name``.

    Raises:
        ConfigurationError: the package that draws is not installed.
    """
    drawing = Html(drawn(chart.spec, name, f"{chart.title}, {of}", chart.words))
    return tag("figure", tag("figcaption", chart.title), drawing)


def write_html(text: str, path: Path) -> None:
    """Write a page, and make the directory that it goes to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def machine_line(machine: Mapping[str, Any]) -> str:
    """Return a sentence on the machine and the packages that figures were measured with."""
    known = (("{}", "cpu"), ("{} cores", "cores"), ("{} GiB", "memory_gib"), ("{}", "system"), ("Python {}", "python"))
    parts = [form.format(machine[name]) for form, name in known if name in machine]
    return ", ".join([*parts, *(f"{name} {version}" for name, version in machine["packages"].items())]) + "."
