"""Each error has a code, each code a page, and each page an error that is raised, with a message that it really has.

What is raised where nothing finer fits is counted here: who adds to it has looked whether something finer does.
"""

import pickle
import re
from pathlib import Path

import pytest

from millpond import errors
from millpond.errors import CODE, Coded, MillpondError, code_of
from tests.packaging.codes import every_error, made

PAGES = Path(__file__).resolve().parents[2] / "docs" / "errors"
ERRORS = {kind.code: kind for kind in every_error() if kind is not MillpondError}
COARSE = {
    "BackendError": 21,
    "ConfigurationError": 3,
    "CorruptStoreError": 58,
    "DurabilityError": 3,
    "FormatError": 22,
    "MillpondError": 0,
    "MissingFileError": 5,
    "RecordError": 9,
    "SerdeError": 38,
    "StateConflictError": 1,
    "StoreError": 1,
    "StoreFullError": 8,
    "TopologyError": 35,
}
"""How often what has others below it is raised itself, plugins included: all of these say what none below does."""


def test_the_code_of_an_error_is_the_name_of_its_class_and_no_two_have_the_same() -> None:
    assert [kind for kind in every_error() if kind.code != code_of(kind.__name__)] == []
    assert len(ERRORS) + 1 == len(list(every_error()))
    assert all(CODE.fullmatch(code) for code in ERRORS)


@pytest.mark.parametrize("kind", ERRORS.values(), ids=ERRORS)
def test_a_message_ends_with_the_code_wherever_the_error_goes(kind: type[Coded]) -> None:
    arrived = pickle.loads(pickle.dumps(kind("what is wrong; what to do")))
    assert (str(arrived), arrived.sentence) == (f"what is wrong; what to do [{kind.code}]", "what is wrong; what to do")


def test_an_error_that_quotes_another_one_has_its_own_code_alone() -> None:
    inner = errors.UnknownColumnError("there is no column 'a'")
    outer = errors.RecordError(f"topic 'in': {inner}; correct it")
    assert str(outer) == "topic 'in': there is no column 'a'; correct it [MILLPOND-RECORD]"


def test_an_error_of_somebody_elses_has_the_code_of_what_it_is() -> None:
    class MineError(errors.BackendError):
        pass

    assert MineError("it broke").code == "MILLPOND-BACKEND"


def test_nothing_is_raised_by_what_has_something_finer_below_it_without_a_look() -> None:
    parents = {
        kind.__name__ for kind in every_error() if any(True for one in kind.__subclasses__() if one.code != kind.code)
    }
    assert {name: len({place.where for place in made()[name]}) for name in sorted(parents)} == COARSE


def test_every_code_has_a_page_and_a_row_and_is_raised_somewhere() -> None:
    rows = re.findall(r"^\| \[(.+)\]\(\1\.md\) \| (.+) \|$", (PAGES / "README.md").read_text(), re.MULTILINE)
    assert sorted(path.stem for path in PAGES.glob("MILLPOND-*.md")) == sorted(ERRORS)
    assert sorted(code for code, _ in rows) == sorted(ERRORS)
    assert {code: told for code, told in rows if told != _meaning(ERRORS[code])} == {}
    assert [code for code, kind in ERRORS.items() if not made()[kind.__name__]] == []


@pytest.mark.parametrize("code", ERRORS)
def test_a_page_says_what_it_is_shows_a_message_that_is_raised_and_is_short(code: str) -> None:
    text, kind = (PAGES / f"{code}.md").read_text(), ERRORS[code]
    title, meaning, rest = text.split("\n\n", 2)
    assert title == f"# {code}"
    assert " ".join(meaning.split()) == _meaning(kind)
    (example,) = re.findall(r"^```text\n(.*?)\n```$", rest, re.MULTILINE | re.DOTALL)
    message, _, ending = " ".join(example.split()).rpartition(" ")
    assert ending == f"[{code}]"
    assert [place.where for place in made()[kind.__name__] if place.template and re.search(place.template, message)]
    assert len(re.findall("^- ", rest, re.MULTILINE)) >= 1, "what to do"
    assert f"`millpond.errors.{kind.__name__}`" in text
    prose = re.sub(r"```.*?```|\]\(.*?\)", "", text, flags=re.DOTALL)
    assert 50 <= len(prose.split()) <= 150


def _meaning(kind: type[Coded]) -> str:
    """Return what the class says that it is, as pages have it."""
    return " ".join((kind.__doc__ or "").partition("\n\n")[0].split()).replace("``", "`")
