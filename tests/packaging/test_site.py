"""The documentation site: which pages it has, where links lead, how figures are shown, and what is refused."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from docs.site import build, pages, plots, reference, results
from docs.site.check import problems
from docs.site.docstrings import markdown
from millpond.bench.history import read_history

ROOT = Path(__file__).resolve().parents[2]
RESULTS = sorted((ROOT / "bench" / "results").glob("*.json"))
HISTORIES = sorted((ROOT / "bench" / "results" / "history").glob("*.jsonl"))
MACHINE = {
    "cpu": "Abacus",
    "cores": 2,
    "memory_gib": 23.5,
    "system": "Linux 6",
    "python": "3.11.7",
    "packages": {"lmdb": "3.0.0"},
}
ABOUT = {"benchmark": "made up", "command": "millpond bench made-up --json -", "machine": MACHINE}


def test_all_that_pages_link_to_has_one_page_of_its_own() -> None:
    found = pages.reachable()
    assert {"docs/formats.md", "CHANGELOG.md", "examples/as_of_join.py", "docs/decisions"} <= set(found)
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")} <= set(found)
    assert len({pages.page_path(path) for path in found}) == len(found)


def test_links_lead_to_pages_and_code_stays_as_it_is() -> None:
    text = "[a](decisions) [b](../examples/as_of_join.py) [c](formats.md#layouts) [d](#here) [e](https://example.org/x.py)\n"
    fenced = "```md\n[b](../examples/as_of_join.py)\n```\n"
    definition = "[f]: ../bench/results/stores.json\n"
    assert pages.with_page_links("docs/durability.md", text + fenced + definition) == (
        "[a](decisions/README.md) [b](../examples/as_of_join.md) [c](formats.md#layouts) [d](#here) "
        f"[e](https://example.org/x.py)\n{fenced}[f]: ../bench/results/stores.md\n"
    )


def test_a_link_to_what_is_not_there_is_refused() -> None:
    with pytest.raises(FileNotFoundError, match=r"docs/formats\.md links to layouts\.md"):
        pages.with_page_links("docs/formats.md", "[x](layouts.md)")


def test_the_navigation_has_every_page_of_the_documentation_once_in_the_order_of_the_index() -> None:
    sections = pages.navigation()
    index = (ROOT / "docs" / "README.md").read_text()
    assert [name for section in sections for name in section] == re.findall(r"^## (.+)$", index, re.MULTILINE)
    named = [path for section in sections for path in _leaves(section)]
    assert named[0] == "README.md"
    assert len(named) == len(set(named))
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")} <= set(named)


def _leaves(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from _leaves(part)


def test_what_the_navigation_names_is_written_and_so_is_all_that_pages_link_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "pages"
    place.mkdir()
    (place / "old.md").touch()
    monkeypatch.setattr(plots, "plots_page", lambda path: "drawn elsewhere")
    monkeypatch.setattr(plots, "moved_plots", lambda histories: "drawn elsewhere")
    build.write_pages(place)
    (line,) = (line for line in build.configuration().splitlines() if line.startswith("nav: "))
    navigation = list(_leaves(json.loads(line.removeprefix("nav: "))))
    assert len(navigation) == len(set(navigation))
    assert [path for path in navigation if not (place / path).is_file()] == []
    links = {path: re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", path.read_text()) for path in place.rglob("README.md")}
    assert [(path, link) for path, found in links.items() for link in found if not (path.parent / link).exists()] == []
    assert {"docs/formats.md", "site.css", "reference/millpond.stores.md", "bench/results/engines-plots.html"} <= {
        path.relative_to(place).as_posix() for path in place.rglob("*")
    }
    assert not (place / "old.md").exists()


def test_a_file_with_fences_is_shown_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (tmp_path / "notes.txt").write_text("````\nin a fence\n````\n")
    assert pages.text_page("notes.txt").endswith("`````text\n````\nin a fence\n````\n`````\n")


def test_the_reference_has_each_public_name_on_the_page_of_its_module(tmp_path: Path) -> None:
    snapshot = tmp_path / "names.txt"
    snapshot.write_text("one\n    class A(x: int)\n        def f(self) -> None\n    def b() -> None\none.two\n    C\n")
    names = reference.public_names(snapshot)
    assert names == {"one": ["A", "b"], "one.two": ["C"]}
    made = reference.pages(names)
    assert list(made) == ["reference/README.md", "reference/one.md", "reference/one.two.md"]
    assert "[`b`][one.b]" in made["reference/README.md"]
    assert "\n::: one.A\n" in made["reference/one.md"]


def test_doctests_and_literal_blocks_of_docstrings_become_markdown() -> None:
    docstring = "Adds::\n\n    code\n\nThen:\n\n>>> for n in (1, 2):\n...     n\n1\n2\n\nAfter.\n\n::\n\n    more"
    assert markdown(docstring) == (
        "Adds:\n\n    code\n\nThen:\n\n```pycon\n>>> for n in (1, 2):\n...     n\n1\n2\n```\n\nAfter.\n\n\n\n    more"
    )


def test_arguments_that_share_a_line_get_a_line_each() -> None:
    docstring = "Joins.\n\nArgs:\n    left, right: the inputs,\n        in order.\n    how: inner or left."
    text = "the inputs,\n        in order."
    assert markdown(docstring) == f"Joins.\n\nArgs:\n    left: {text}\n    right: {text}\n    how: inner or left."


def test_figures_are_shown_with_their_command_and_machine(tmp_path: Path) -> None:
    page = _page_of(tmp_path, command="millpond bench spark --rows 10", rows=1000000)
    assert "```sh\nmillpond bench spark --rows 10\n```" in page
    assert "Measured on Abacus, 2 cores, 23.5 GiB, Linux 6, Python 3.11.7, lmdb 3.0.0." in page
    assert "| rows | 1,000,000 |" in page


def test_figures_of_the_same_contenders_make_one_table(tmp_path: Path) -> None:
    page = _page_of(
        tmp_path,
        batch_seconds={"lmdb": [1.5, 2], "jvm": [3]},
        worker_bytes={"lmdb": {"own": 5}},
        seconds={"lmdb": 1.75, "jvm": 3.0},
    )
    assert "| lmdb | 1.5, 2 |" in page
    assert "| name | worker bytes own | seconds |\n|---|--:|--:|\n| lmdb | 5 | 1.75 |\n| jvm |  | 3 |" in page


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_heads_of_columns_are_words_and_every_latency_has_its_unit(path: Path) -> None:
    lines = results.run_page(path).splitlines()
    ruled = [line for line, rule in pairwise(lines) if set(rule) <= set("|-:") and rule.startswith("|-")]
    heads = {head.strip() for line in ruled for head in line.strip("|").split("|")}
    assert not {"of"} & heads
    assert not [head for head in heads if "_" in head or " us " in f"{head} " or "p99 9" in head]
    assert not [head for head in heads if head.startswith("latency ") and not head.endswith(", µs")]
    assert not [head for head in heads if head.startswith(("by operation", "value "))]


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_pages_of_figures_are_not_searched(path: Path) -> None:
    assert results.run_page(path).startswith(f"---\nsearch:\n  exclude: true\n---\n\n# {path.stem}\n")


def test_rows_within_rows_make_tables_of_their_own(tmp_path: Path) -> None:
    profile = {"case": "count", "functions": [{"function": "get", "own_us": 1.07}]}
    page = _page_of(tmp_path, results=[{"kind": "a|b", "store": {"p50_us": 3.144}}], profiles=[profile])
    assert "| kind | store p50, µs |\n|---|--:|\n| a\\|b | 3.144 |" in page
    assert "**count**\n\n| function | own, µs |\n|---|--:|\n| get | 1.07 |" in page


def test_series_that_are_long_stand_below_their_table(tmp_path: Path) -> None:
    page = _page_of(
        tmp_path, phases={"before": {"rows": 5, "seconds": [0.5] * 13}, "after": {"rows": 6, "seconds": [2]}}
    )
    assert "| name | rows |\n|---|--:|\n| before | 5 |\n| after | 6 |\n" in page
    assert f"\n\n**before, seconds**\n\n{', '.join(['0.5'] * 13)}\n\n**after, seconds**\n\n2\n" in page


def test_series_over_time_are_left_to_the_page_of_plots_if_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "engines.json"
    row = {"contender": "lmdb", "throughput": {"median": 2, "runs": [1, 2, 3]}, "over_time": [[0.5, 7.5], [1, 8]]}
    path.write_text(json.dumps({**ABOUT, "benchmark": "engines", "schema": 2, "results": [row]}))
    assert "| lmdb | 2 | 1, 2, 3 | 0.5, 7.5; 1, 8 |" in results.run_page(path)
    name = plots.plots_name(path)
    assert name == "engines-plots.html"
    page = results.run_page(path, name)
    assert "| lmdb | 2 | 1, 2, 3 |\n" in page
    assert "[engines-plots.html](engines-plots.html)" in page
    path.write_text(json.dumps({**ABOUT, "benchmark": "stores"}))
    assert plots.plots_name(path) is None  # older than schema 2, without runs


@pytest.mark.long
def test_every_file_that_has_plots_makes_a_page_of_them() -> None:
    having = [path for path in RESULTS if plots.plots_name(path) is not None]
    assert "engines" in {path.stem for path in having}
    assert all("<svg" in plots.plots_page(path) for path in having)


def test_each_history_is_that_of_a_run_and_is_listed_with_its_days() -> None:
    histories = [read_history(path) for path in HISTORIES]
    page = plots.moved_page(histories)
    runs = {path.stem for path in RESULTS}
    assert HISTORIES
    for path, history in zip(HISTORIES, histories, strict=True):
        assert path.stem in runs
        ends = f"{history.entries[0].date} | {history.entries[-1].date}"
        assert f"| [{path.stem}](../{path.stem}.md) | {len(history.entries)} | {ends} |" in page


@pytest.mark.long
def test_the_histories_make_a_page_of_plots() -> None:
    assert "<svg" in plots.moved_plots([read_history(path) for path in HISTORIES])


def _page_of(directory: Path, **figures: Any) -> str:
    path = directory / "run.json"
    path.write_text(json.dumps({**ABOUT, **figures}))
    return results.run_page(path)


@pytest.mark.parametrize(
    ("figures", "lacking"), [([], "benchmark and command and machine"), ({"benchmark": "a", "machine": {}}, "command")]
)
def test_figures_whose_command_or_machine_nobody_knows_are_refused(tmp_path: Path, figures: Any, lacking: str) -> None:
    (tmp_path / "other.json").write_text(json.dumps(figures))
    with pytest.raises(ValueError, match=rf"other\.json is no file of figures: it does not say its {lacking}$"):
        results.run_page(tmp_path / "other.json")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_no_figure_of_a_run_is_left_out(path: Path) -> None:
    page = results.run_page(path)
    figures = {name: part for name, part in json.loads(path.read_text()).items() if name not in ("machine", "schema")}
    shown = set(re.split(r" ?[|\n] ?|\*\*|[,;] ", page))
    assert [value for value in _figures(figures) if results._shown(value) not in shown] == []
    assert f"[{path.stem}](../{path.stem}.md)" in results.overview_page(RESULTS)


def _figures(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _figures(part)
    elif not isinstance(value, str):
        yield value


STYLE = '<link rel="stylesheet" href="site.css">'
GOOD = f'{STYLE}<h1 id="top">x</h1><a href="https://example.org">y</a><a href="#top">z</a>'


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<script src="https://example.org/a.js"></script>', "loads https://example.org/a.js from elsewhere"),
        ('<link rel="preconnect" href="//example.org">', "loads //example.org from elsewhere"),
        ('<img src="missing.png">', "loads missing.png, which does not exist"),
        ('<img srcset="https://example.org/b.png 2x">', "loads https://example.org/b.png from elsewhere"),
        ("<style>@import '//example.org/c.css'</style>", "loads //example.org/c.css from elsewhere"),
        ('<p style="background: url(http://example.org/d)">', "loads http://example.org/d from elsewhere"),
        ('<pre class="mermaid">a</pre>', "has an element of the class mermaid"),
        ('<a href="gone.html">a</a>', "links to gone.html, which does not exist"),
        ('<a href="part/">a</a>', "links to part/, which does not exist"),
        ('<a href="other.html#gone">a</a>', "links to other.html#gone, which has no such section"),
    ],
)
def test_a_site_that_loads_from_elsewhere_or_links_to_nowhere_is_refused(
    tmp_path: Path, html: str, problem: str
) -> None:
    (tmp_path / "site.css").write_text("p { color: teal }")
    (tmp_path / "other.html").write_text(GOOD)
    (tmp_path / "part").mkdir()
    (tmp_path / "index.html").write_text(GOOD + '<a href="/other.html#top">b</a>')
    assert problems(tmp_path) == []
    (tmp_path / "index.html").write_text(GOOD + html)
    (found,) = problems(tmp_path)
    assert found.startswith(f"index.html: {problem}")


def test_a_style_sheet_that_loads_from_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "site.css").write_text('@font-face { src: url("https://example.org/font.woff2") }')
    assert problems(tmp_path) == ["site.css: loads https://example.org/font.woff2"]
