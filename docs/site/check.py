"""The check of the built site: nothing is loaded from elsewhere, and every link leads somewhere.

Rule of this module: it looks at the files that a browser would get, and knows nothing of how they were made.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"script": "src", "img": "src", "source": "src", "iframe": "src", "embed": "src", "object": "data"}
_LOADED |= {"audio": "src", "video": "src", "track": "src", "input": "src"}
_LINKS_ONLY = {"alternate", "author", "canonical", "help", "license", "next", "prev"}
_STYLE_URL = re.compile(r"""(?:url\(|@import)\s*["']?\s*((?:https?:)?//[^"')\s]+)""", re.IGNORECASE)
_FETCHED_BY_THE_THEME = {"mermaid"}
"""Classes of elements for which the theme's script loads another one from elsewhere."""


@dataclass
class _Page(HTMLParser):
    """The loads, the links and the names that can be linked to of a page."""

    names: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    classes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.names |= {found[name] for name in ("id", "name") if name in found}
        self.classes |= set(found.get("class", "").split())
        self.loads += _STYLE_URL.findall(found.get("style", ""))
        self.loads += [part.split()[0] for part in found.get("srcset", "").split(",") if part.strip()]
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and not set(found.get("rel", "").split()) <= _LINKS_ONLY:
            self.loads.append(found.get("href", ""))
        elif found.get(_LOADED.get(tag, "")):
            self.loads.append(found[_LOADED[tag]])


def problems(site: Path) -> list[str]:
    """Return all that is wrong with the site in a directory, each with the page where it is."""
    pages = {path.resolve(): _read(path) for path in sorted(site.rglob("*.html"))}
    found = [
        f"{path.relative_to(site.resolve())}: {problem}"
        for path, page in pages.items()
        for problem in _of_page(site.resolve(), path, page, pages)
    ]
    for sheet in sorted(site.rglob("*.css")):
        found += [f"{sheet.relative_to(site)}: loads {url}" for url in _STYLE_URL.findall(sheet.read_text())]
    return found


def _read(path: Path) -> _Page:
    page = _Page()
    text = path.read_text()
    page.feed(text)
    for style in re.findall(r"<style.*?</style>", text, re.DOTALL):
        page.loads += _STYLE_URL.findall(style)
    return page


def _of_page(site: Path, path: Path, page: _Page, pages: dict[Path, _Page]) -> Iterator[str]:
    for url in page.loads:
        if urlsplit(url).netloc:
            yield f"loads {url} from elsewhere"
        elif not urlsplit(url).scheme and not _target(site, path, url).is_file():
            yield f"loads {url}, which does not exist"
    for name in sorted(page.classes & _FETCHED_BY_THE_THEME):
        yield f"has an element of the class {name}, for which the theme loads a script from elsewhere"
    for url in page.links:
        parts = urlsplit(url)
        if parts.scheme or parts.netloc:
            continue
        target = _target(site, path, url)
        if not target.is_file():
            yield f"links to {url}, which does not exist"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].names:
            yield f"links to {url}, which has no such section"


def _target(site: Path, page: Path, url: str) -> Path:
    """Return the file that a browser would get for a relative address on ``page``."""
    place = unquote(urlsplit(url).path)
    if not place:
        return page
    target = (site / place.lstrip("/") if place.startswith("/") else page.parent / place).resolve()
    return target / "index.html" if target.is_dir() else target
