"""``millpond explain``: the page of an error, by its code.

Rule of this module: the pages are files of the documentation, ``docs/errors``, which a wheel brings; no network.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.resources import files
from textwrap import indent
from typing import Annotated

import typer

from millpond.cli.terminal.answers import AsJson, say
from millpond.cli.terminal.teaching import lesson
from millpond.errors import CODE, UnknownNameError, code_of

LESSON = lesson(
    "millpond explain MILLPOND-UNKNOWN-COLUMN",
    "millpond explain UnknownColumnError",
    "millpond explain | less",
    read="docs/errors/README.md",
)

_ALL = "MILLPOND-"
_PLACE = "docs/errors"
_FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


def _completed(incomplete: str) -> list[str]:
    """Return the codes with that beginning."""
    return [code for code in known_pages() if code.startswith(incomplete.upper())]


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]",
            autocompletion=_completed,
            help="what a message ends with, the name of an error, or a whole message; all codes if there is none",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Tell what an error means, when it comes, and what to do, by the CODE that its message ends with."""
    pages = known_pages()
    for found in pages if code is None else [_meant(code, pages)]:
        say(_Explanation.of(found, pages[found], whole=code is not None), json)


def known_pages() -> dict[str, str]:
    """Return the text of the page of each code, in the order of their names."""
    found = {page.name.removesuffix(".md"): page for page in (files("millpond") / "explained").iterdir()}
    return {code: found[code].read_text(encoding="utf-8") for code in sorted(found) if CODE.fullmatch(code)}


def _meant(text: str, pages: dict[str, str]) -> str:
    """Return the code that a text means: its last one, or that of an error that it names, in any case.

    Raises:
        UnknownNameError: there is no such code.
    """
    from millpond.processors.options.known_names import did_you_mean

    said = CODE.findall(text.upper())
    code = said[-1] if said else code_of(text) if text.endswith(("Error", "Warning")) else f"{_ALL}{text.upper()}"
    if code not in pages:
        hint = did_you_mean(code.removeprefix(_ALL), [one.removeprefix(_ALL) for one in pages])
        raise UnknownNameError(f"there is no code {code}{hint or '; millpond explain lists all of them'}")
    return code


@dataclass(frozen=True)
class _Explanation:
    """The explanation of an error.

    Attributes:
        code: its code.
        meaning: its meaning, in a sentence.
        page: the place of its page in the documentation.
        text: the page; None if only the sentence is asked for.
    """

    code: str
    meaning: str
    page: str
    text: str | None

    @classmethod
    def of(cls, code: str, page: str, *, whole: bool) -> "_Explanation":
        meaning = " ".join(page.split("\n\n")[1].split())
        return cls(code, meaning, f"{_PLACE}/{code}.md", _plain(page) if whole else None)

    def lines(self) -> Iterator[str]:
        yield f"{self.code}: {self.meaning}" if self.text is None else self.text

    def to_dict(self) -> dict[str, str | None]:
        return asdict(self)


def _plain(page: str) -> str:
    """Return a page for a terminal: no marks of headings, code and links, whose places start at the repository."""
    text = _FENCED.sub(lambda found: indent(found[1].rstrip("\n"), "    "), page.removeprefix("# ").rstrip("\n"))
    return _LINK.sub(lambda found: f"{found[1]} ({found[2].replace('../../', '').replace('../', 'docs/')})", text)
