"""Vega-Lite specifications as SVG that is part of an HTML page: without a script, and in the colors of the page.

Rule of this module: it knows no figures. Colors in a specification are CSS variables, such as ``var(--dim)``, so that a
drawing is light or dark with its page. What a specification says as ``description`` of a mark is shown when a pointer
rests on it.
"""

import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from millpond.errors import ConfigurationError

_SVG = "{http://www.w3.org/2000/svg}"
_LEFT_OUT = {"class", "role", "pointer-events", "font-family", "version", "width", "height"}
_PLACES = {"d", "transform", "x2", "y2"}
_FINER = re.compile(r"(\.\d)\d+")
_CONFIG = {
    "background": None,
    "view": {"stroke": None},
    "axis": {
        "domainColor": "var(--line)",
        "gridColor": "var(--line)",
        "labelColor": "var(--dim)",
        "labelFontSize": 11,
        "labelOverlap": "greedy",
        "labelSeparation": 8,
        "tickColor": "var(--line)",
        "titleColor": "var(--dim)",
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "titlePadding": 8,
    },
    "text": {"fontSize": 12},
}


def require_drawing() -> None:
    """Refuse what needs drawings before anything is done for it.

    Raises:
        ConfigurationError: the package that draws is not installed.
    """
    try:
        import vl_convert  # noqa: F401  (it takes long, and only a page needs it)
    except ModuleNotFoundError as error:
        raise ConfigurationError("pages with plots need vl_convert: pip install 'millpond[bench]'") from error


def drawn(specification: Mapping[str, Any], name: str, title: str, description: str) -> str:
    """Return an SVG element, whose id begins with ``name``, with a title and a description for screen readers.

    Raises:
        ConfigurationError: the package that draws is not installed.
    """
    require_drawing()
    import vl_convert

    made = vl_convert.vegalite_to_svg({**specification, "config": _CONFIG}, allowed_base_urls=[])
    root = ElementTree.fromstring(made)
    _clean(root)
    ids = {"title": f"{name}-title", "desc": f"{name}-desc"}
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(tag, {"id": ids[tag]})
        element.text = text
        root.insert(place, element)
    root.set("role", "img")
    root.set("aria-labelledby", " ".join(ids.values()))
    return ElementTree.tostring(root, encoding="unicode")


def _clean(element: ElementTree.Element) -> None:
    """Leave out what nobody sees, and turn the labels of marks into titles."""
    element.tag = element.tag.removeprefix(_SVG)
    label = element.get("aria-label")
    is_mark = element.get("role") == "graphics-symbol" and element.get("aria-roledescription") != "axis"
    for name, value in list(element.attrib.items()):
        if name.startswith("aria-") or name in _LEFT_OUT or (name, value) == ("opacity", "1"):
            del element.attrib[name]
        elif name in _PLACES:
            element.set(name, _FINER.sub(r"\1", value))
    for child in list(element):
        if _is_seen(child):
            _clean(child)
        else:
            element.remove(child)
    if label is not None and is_mark:
        shown = ElementTree.Element("title")
        shown.text = label
        element.insert(0, shown)


def _is_seen(element: ElementTree.Element) -> bool:
    if element.get("class") in ("background", "foreground") or element.get("opacity") == "0":
        return False
    return element.get("display") != "none" and (len(element) > 0 or element.tag != f"{_SVG}g")
