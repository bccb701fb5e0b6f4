"""The documents: their links lead somewhere, every page can be found, and all prose has one spelling and width."""

import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from millpond import errors
from millpond.metrics import StoreMetric
from millpond.processors.runtime.metrics import TaskMetric
from millpond.stores import backend_names, supplier
from tests.packaging.codes import every_error

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "bench" / "README.md",
    ROOT / "plugins" / "README.md",
    *sorted((ROOT / "plugins").glob("*/README.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted(DOCS.rglob("*.md")),
]

SPELLED = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs",
    "examples",
    "plugins",
    "processors",
    "stores",
    "adapters",
    "bench",
    "src/millpond",
    "tests",
)
"""Files, and folders of Python and Markdown files, that are written in American spelling; this file lists the other."""

BRITISH = re.compile(
    r"(?:(?:serial|initial|material|normal|summar|organ|optim|recogn|minim|maxim|general|special|synchron|real|final)is"
    r"(?:e|es|ed|er|ers|ing|ation|ations)|(?:behavi|col|fav|neighb|hon|lab)our\w*|licence\w*|catalogue\w*|grey|"
    r"(?:cancel|label|model|travel|signal|total)l(?:ed|ing)|centre\w*|whilst|amongst|artefact\w*)\b",
)

WIDTH = 120

WORDS = {
    "CONTRIBUTING.md": 3_150,
    "bench/README.md": 2_850,
    "docs/backends.md": 1_000,
    "docs/benchmarks.md": 600,
    "docs/choosing.md": 900,
    "docs/coming-from-kafka-streams.md": 1_400,
    "docs/coming-from-spark.md": 3_500,
    "docs/command-line.md": 1_150,
    "docs/counters.md": 850,
    "docs/differences-from-kafka-streams.md": 2_500,
    "docs/doctor.md": 1_050,
    "docs/durability.md": 3_900,
    "docs/editing-state.md": 1_200,
    "docs/formats.md": 5_800,
    "docs/headers.md": 700,
    "docs/kafka.md": 600,
    "docs/limits.md": 1_250,
    "docs/looking-at-state.md": 1_200,
    "docs/metrics.md": 1_200,
    "docs/names-elsewhere.md": 2_100,
    "docs/nexmark.md": 950,
    "docs/operating.md": 3_450,
    "docs/packaging.md": 750,
    "docs/pipelines.md": 500,
    "docs/running-on-spark.md": 4_000,
    "docs/scale.md": 1_350,
    "docs/side-by-side.md": 900,
    "docs/stability.md": 400,
    "docs/tutorial.md": 950,
    "docs/upgrading.md": 5_650,
    "docs/verbs.md": 15_000,
    "docs/watching.md": 800,
    "docs/without-spark.md": 950,
    "docs/writing-a-backend.md": 2_550,
}
"""How many words a page may have, as ``wc -w`` counts them."""


def test_every_file_that_the_documents_name_exists() -> None:
    missing = []
    for document in PAGES:
        text = document.read_text()
        links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
        missing += [f"{document.name}: {link}" for link in links if not (document.parent / link).exists()]
        sources = re.findall(r"`((?:stores|processors|adapters|bench|src|tests)/[\w/]+(?:\.py|/))`", text)
        missing += [f"{document.name}: {source}" for source in sources if not (ROOT / source).exists()]
    assert missing == []


def test_every_section_that_the_documents_name_exists() -> None:
    missing = []
    for document in PAGES:
        for link, section in re.findall(r"\]\(((?!https?:)[^)#]*)#([^)]+)\)", document.read_text()):
            target = document.parent / link if link else document
            if target.exists() and section not in set(_sections(target)):
                missing.append(f"{document.name}: {link}#{section}")
    assert missing == []


def _sections(page: Path) -> Iterator[str]:
    """Yield the names by which a page's headings are linked."""
    for heading in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_index_names_every_page() -> None:
    index, codes = DOCS / "README.md", DOCS / "errors" / "README.md"
    linked = ((page, re.findall(r"\]\(([^)#:]+)\)", page.read_text())) for page in (index, codes))
    named = {(page.parent / link).resolve() for page, links in linked for link in links}
    assert [page.name for page in PAGES if page not in {*named, index}] == []
    assert "](docs/README.md)" in (ROOT / "README.md").read_text()


def test_decisions_are_numbered_and_have_the_same_sections() -> None:
    records = sorted((DOCS / "decisions").glob("*.md"))
    for number, record in enumerate(records, start=1):
        text = record.read_text()
        assert record.name.startswith(f"{number:04d}-")
        assert text.startswith(f"# {number}. ")
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert headings[:2] == ["Context", "Decision"], record.name
        assert headings[-2:] == ["Consequences", "What would change our mind"], record.name


def test_the_spelling_is_american() -> None:
    files = [
        file
        for root in map(ROOT.joinpath, SPELLED)
        for file in ([root] if root.is_file() else [*root.rglob("*.md"), *root.rglob("*.py")])
        if file != Path(__file__).resolve()
    ]
    wrong = [
        f"{file.relative_to(ROOT)}: {word}"
        for file in files
        for word in sorted(set(re.findall(r"\w+", file.read_text().lower())))
        if BRITISH.search(word)
    ]
    assert wrong == []


def test_prose_is_no_wider_than_code() -> None:
    wide = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in [*PAGES, ROOT / "bench" / "results" / "README.md", ROOT / "tests" / "golden" / "README.md"]
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if len(line) > WIDTH and not line.startswith("|")
    ]
    assert wide == []


def test_the_changelog_goes_by_release_and_by_kind_of_change() -> None:
    headings = re.findall(r"^(##+) (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    releases = [text for marks, text in headings if marks == "##"]
    assert releases[0] == "Unreleased"
    assert [text for text in releases[1:] if not re.fullmatch(r"\d+\.\d+\.\d+( - \d{4}-\d{2}-\d{2})?", text)] == []
    kinds = {text for marks, text in headings if marks == "###"}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_readme_and_what_is_unreleased_are_a_page() -> None:
    unreleased = (ROOT / "CHANGELOG.md").read_text().partition("## Unreleased")[2].partition("\n## ")[0]
    assert len((ROOT / "README.md").read_text().split()) < 600
    assert len(unreleased) < 8_000


def test_a_page_does_not_grow_back() -> None:
    grown = {page: count for page in WORDS if (count := len((ROOT / page).read_text().split())) > WORDS[page]}
    assert grown == {}


def test_the_answer_to_a_question_is_short_and_begins_with_a_program() -> None:
    for page in (DOCS / "questions").glob("*.md"):
        text = page.read_text()
        assert re.match(r"# .+\?\n\n```python\n", text), page.name
        assert 150 <= len(text.split()) <= 350, page.name


def test_a_verbs_way_passes_no_file_twice() -> None:
    steps = re.findall(r"^\| \d+ \| `([\w/]+\.py)` \|", (DOCS / "architecture.md").read_text(), re.MULTILINE)
    assert steps[0] == "adapters/spark/verbs/joins.py"
    assert steps[-1] == "adapters/spark/verbs/frames/sink.py"
    assert len(steps) == len(set(steps)) > 20


def test_the_architecture_page_is_short_and_has_few_words_of_its_own() -> None:
    page = (DOCS / "architecture.md").read_text()
    words = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", page.partition("## Words")[2], re.MULTILINE)
    assert len(page.split()) <= 1_500
    assert words[0] == "word"
    assert words[1:] == sorted(words[1:])
    assert len(words) <= 41


def test_what_belongs_to_an_item_of_a_list_is_a_part_of_it_for_every_markdown() -> None:
    """CommonMark takes two or three spaces; the Markdown of the site takes four, and would end the list."""
    apart = re.compile(r"\n\n {1,3}\S|^ {1,3}(?:[-*]|\d+\.) ", re.MULTILINE)
    assert [page.name for page in PAGES if apart.search(page.read_text())] == []


def test_the_page_of_backends_has_every_option_with_its_default() -> None:
    page = (DOCS / "backends.md").read_text()
    for name in backend_names():
        default = supplier(name)
        (section,) = re.findall(rf"^## `{name}`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
        assert f"`{type(default).__module__}.{type(default).__name__}`" in section
        rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", section, re.MULTILINE)
        options: list[Any] = list(fields(default))  # type: ignore[arg-type]
        assert [option for option, _ in rows] == [option.name for option in options]
        assert supplier(f"{name}://?" + "&".join(f"{option}={value}" for option, value in rows)) == default


@pytest.mark.parametrize("name", ["Sqlite", "Redis", "SlateDb"])
def test_the_page_of_a_plugin_has_every_option_with_its_default(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it has no default, the page says in words what that means."""
    plugin = ROOT / "plugins" / f"millpond-{name.lower()}"
    monkeypatch.syspath_prepend(plugin / "src")
    kind = getattr(import_module(f"millpond_{name.lower()}"), f"{name}Supplier")
    page = (plugin / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (?:`([^`]+)`|[^`|]+) \|", page, re.MULTILINE)
    assert [option for option, _ in rows] == [option.name for option in fields(kind)]
    assert [option for option, value in rows if not value] == [one.name for one in fields(kind) if one.default is None]
    assert kind.from_options({option: value for option, value in rows if value}) == kind()


def test_the_page_on_operating_knows_the_errors_and_alerts_on_figures_that_there_are() -> None:
    page = (DOCS / "operating.md").read_text()
    explained = page.partition("## When a task fails")[2].partition("\n## ")[0]
    assert _first_cells(explained) - {"error"} <= {kind.__name__ for kind in every_error()}
    assert "](errors/README.md)" in explained
    counted = {"commit.age", "records.dropped", "records.late"}
    alerts = _first_cells(page.partition("## What to watch")[2].partition("\n## ")[0])
    assert alerts <= {*map(str, TaskMetric), *map(str, StoreMetric), *counted}
    assert len(alerts) > 10


def test_the_tree_of_errors_names_each() -> None:
    tree = errors.__doc__ or ""
    assert [kind.__name__ for kind in every_error() if kind.__name__ not in tree] == []


def _first_cells(text: str) -> set[str]:
    """Return the code that the first cells of a text's tables name."""
    rows = re.findall(r"^\| (.*?) \|", text, re.MULTILINE)
    return {name for cell in rows for name in re.findall(r"`([\w.]+)`", cell)}
