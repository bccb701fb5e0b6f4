"""Docstrings as Markdown, for the reference.

Doctests become blocks of code, ``::`` before an indented block becomes a colon, and arguments that share a line get a
line each, beside their own types.
"""

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"^( *)>>> .*(?:\n\1.*\S.*)*", re.MULTILINE)
_LITERAL = re.compile(r"(\S?) ?::$", re.MULTILINE)
_TOGETHER = re.compile(r"^( {4})(\*{0,2}\w+(?:, \*{0,2}\w+)+)(: .*(?:\n\1 +\S.*)*)", re.MULTILINE)


class Markdown(griffe.Extension):
    """Rewrites each docstring before it is taken apart into sections."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object of a package that was read to Markdown."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(docstring: str) -> str:
    """Return the docstring with what is not Markdown made so."""
    fenced = _DOCTEST.sub(lambda match: f"{match[1]}```pycon\n{match[0]}\n{match[1]}```", docstring)
    apart = _TOGETHER.sub(_a_line_each, fenced)
    return _LITERAL.sub(lambda match: f"{match[1]}:" if match[1] else "", apart)


def _a_line_each(match: re.Match[str]) -> str:
    return "\n".join(f"{match[1]}{name}{match[3]}" for name in match[2].split(", "))
