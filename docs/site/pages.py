"""The files of the repository that are pages of the site, and their paths.

Rule of this module: the site mirrors the repository. A page has the path of its file, so a link that works where the
repository is shown works on the site. What pages link to comes along: Markdown as it is, any other file as a page that
shows its text, a folder as a page that lists it.
"""

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HOME = "README.md"
INDEX = "docs/README.md"
INDEXED = ("docs/", "examples/")
"""The folders whose index is shown with the pages of the folder."""
FIGURES = "bench/results/README.md"
IMAGES = (".png",)

_FENCED = re.compile(r"^( *)(```+|~~~+).*?^\1\2[`~]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<before>\]\(|^\[[^\]]+\]:\s+)(?P<path>(?![a-z][a-z+.-]*:|[#/])[^)#\s]+)", re.MULTILINE)
_LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml", ".sh": "sh"}


def reachable() -> list[str]:
    """Return the files and folders that can be reached by links from the front page, by their paths in the repository.

    Raises:
        FileNotFoundError: a page links to what is not there.
    """
    found = [HOME]
    for path in found:
        if path.endswith(".md"):
            text = _FENCED.sub("", (ROOT / path).read_text())
            targets = (_target(path, match["path"]) for match in _LINK.finditer(text))
            found += [target for target in dict.fromkeys(targets) if target not in found]
    return found


def _target(page: str, link: str) -> str:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    if not (ROOT / target).exists():
        raise FileNotFoundError(f"{page} links to {link}, which does not exist; correct the link")
    return target


def page_path(path: str) -> str:
    """Return the path of a Markdown file for the page of a file or folder of the repository.

    >>> page_path("docs/upgrading.md"), page_path("examples/as_of_join.py"), page_path("docs/decisions")
    ('docs/upgrading.md', 'examples/as_of_join.md', 'docs/decisions/README.md')
    """
    if path.endswith((".md", *IMAGES)):
        return path
    return f"{path}/README.md" if (ROOT / path).is_dir() else str(PurePosixPath(path).with_suffix(".md"))


def with_page_links(page: str, text: str) -> str:
    """Return the Markdown of ``page`` with links to pages, where it has links to other files and to folders."""

    def to_page(match: re.Match[str]) -> str:
        target = _target(page, match["path"])
        return match["before"] + posixpath.relpath(page_path(target), posixpath.dirname(page) or ".")

    fences = [match.span() for match in _FENCED.finditer(text)]
    parts, end = [], 0
    for start, stop in [*fences, (len(text), len(text))]:
        parts += [_LINK.sub(to_page, text[end:start]), text[start:stop]]
        end = stop
    return "".join(parts)


def text_page(path: str) -> str:
    """Return a page that shows the text of a file."""
    text = (ROOT / path).read_text().rstrip("\n")
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    language = _LANGUAGES.get(PurePosixPath(path).suffix, "text")
    return f"# {PurePosixPath(path).name}\n\n`{path}`\n\n{fence}{language}\n{text}\n{fence}\n"


def folder_page(path: str) -> str:
    """Return a page that lists a folder: pages by their titles, modules and rooms by their docstrings."""
    return f"# {path}/\n\n" + "".join(f"- {line}\n" for line in _entries(ROOT / path))


def _entries(folder: Path) -> Iterator[str]:
    for entry in sorted(folder.iterdir()):
        if entry.suffix == ".md" and entry.name != "README.md":
            yield f"[{title(entry)}]({entry.name})"
        elif entry.suffix == ".py" and entry.name != "__init__.py":
            yield f"`{entry.name}`: {_summary(entry)}"
        elif (entry / "__init__.py").exists():
            yield f"`{entry.name}/`: {_summary(entry / '__init__.py')}"


def _summary(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text())) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


def title(page: Path) -> str:
    """Return the first heading of a Markdown file."""
    found = re.search(r"^# (.+)$", page.read_text(), re.MULTILINE)
    return found[1] if found else page.stem


def navigation() -> list[dict[str, Any]]:
    """Return the site's sections: those of the documentation's index, which is the last page of the first one."""
    first, *others = _sections()
    ((name, entries),) = first.items()
    return [{name: [{"Millpond": HOME}, *entries, {"All pages": INDEX}]}, *others]


def _label(path: str) -> str:
    return title(ROOT / path) if path.endswith(".md") else PurePosixPath(path).stem


def _sections() -> Iterator[dict[str, Any]]:
    """Yield the index's sections. A page is in the first section that names it; figures have their own."""
    seen = {HOME, FIGURES}
    for section in re.split(r"^## ", (ROOT / INDEX).read_text(), flags=re.MULTILINE)[1:]:
        heading, *parts = re.split(r"^### (.+)$", section, flags=re.MULTILINE)
        name, _, body = heading.partition("\n")
        entries = _listed(body, seen)
        for inner, listed in zip(parts[::2], parts[1::2], strict=True):
            entries.append({inner: _listed(listed, seen)})
        yield {name: entries}


def _listed(text: str, seen: set[str]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for name, link in re.findall(r"^(?:-|\d+\.) \[([^\]]+)\]\(([^)#]+)\)", text, re.MULTILINE):
        path = _target(INDEX, link)
        if path not in seen:
            entry = _with_pages(path) if path.startswith(INDEXED) and path.endswith("/README.md") else path
            seen.add(path)
            entries.append({name: entry})
    return entries


def _with_pages(index: str) -> list[Any]:
    """Return the index of a folder, with what it links to there."""
    listed = [path for path in dict.fromkeys(_links(index)) if path.startswith(f"{posixpath.dirname(index)}/")]
    return [index, *({_label(path): page_path(path)} for path in listed)]


def _links(page: str) -> list[str]:
    return [_target(page, match["path"]) for match in _LINK.finditer((ROOT / page).read_text())]
