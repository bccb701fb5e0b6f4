"""The figures of the page side by side with others are counted, not estimated."""

import re
from pathlib import Path

import pytest

from millpond.bench import folders, hops


def test_a_call_passes_files_functions_and_calls(capsys: pytest.CaptureFixture[str]) -> None:
    hops.main()
    (build, feed), counted = (
        capsys.readouterr().out.splitlines()[:2],
        r"(\d+) files +(\d+) functions +(\d+) calls, +(\d+)",
    )
    files, functions, calls, way = (int(figure) for figure in re.findall(counted, feed)[0])
    assert 1 < way < files < functions < calls
    assert re.findall(counted, build)[0][-1] == "0"


def test_folders_that_reach_themselves_are_in_a_circle() -> None:
    assert folders.in_circles({("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")}) == {"a", "b", "c"}


def test_imports_that_are_put_off_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {
        "__init__.py": "",
        "low/__init__.py": "",
        "low/a.py": "def late():\n    import circled.high.b\nif TYPE_CHECKING:\n    import circled.high.b\n",
        "high/__init__.py": "",
        "high/b.py": "from ..low import a\nfrom circled.high.c import d\n",
        "high/c.py": "",
    }
    for name, text in sources.items():
        file = tmp_path / "circled" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert (
        folders.figures("circled")
        == "circled: 6 modules, 6 lines, 3 folders, the largest high with 3\n    0 in circles: "
    )
    (tmp_path / "circled" / "low" / "__init__.py").write_text("import circled.high.b\n")
    assert folders.figures("circled").endswith("2 in circles: circled.high, circled.low")
