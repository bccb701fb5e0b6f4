"""The notes beside the figures of every benchmark."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.bench.documents import is_date
from millpond.bench.report import STANDARD_OUTPUT, as_json, document, write_text

TEXTS = st.text(st.sampled_from('[]\n, 1-e"\\x'))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
CONTENTS = st.recursive(
    NUMBERS | TEXTS | st.none() | st.booleans(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)
)


def test_figures_name_the_command_that_measured_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["bench", "stores", "--kind", "versioned", "--directory", "a disk", "--json", "out.json"]
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/millpond", *arguments])
    write_text(tmp_path / "new" / "out.json", as_json(document("stores", {"rounds": 5})))
    figures = json.loads((tmp_path / "new" / "out.json").read_text())
    assert shlex.split(figures["command"]) == ["millpond", *arguments]
    assert figures["benchmark"] == "stores"
    assert figures["rounds"] == 5
    assert is_date(figures["date"])
    assert {"cpu", "cores", "memory_gib", "system", "python", "packages"} <= figures["machine"].keys()


def test_figures_show_nothing_that_is_secret_in_a_url(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = ["redis://?url=redis%3A%2F%2Fme%3Ahunter2%40host", "--backend=lmdb://?token=hunter2", "a%41 file"]
    monkeypatch.setattr(sys, "argv", ["millpond", "bench", "stores", *urls])
    write_text(STANDARD_OUTPUT, as_json(document("stores", {"results": [{"backend": urls[0], "keys": 5}]})))
    text = capsys.readouterr().out
    assert "hunter2" not in text
    figures = json.loads(text)
    assert figures["results"] == [{"backend": "redis://?url=redis://***@host", "keys": 5}]
    assert shlex.split(figures["command"])[3:] == [
        "redis://?url=redis://***@host",
        "--backend=lmdb://?token=***",
        "a%41 file",
    ]


@given(st.dictionaries(TEXTS, CONTENTS))
def test_what_is_written_is_what_is_read(found: dict[str, Any]) -> None:
    assert json.loads(as_json(found)) == found


def test_a_point_takes_a_line() -> None:
    lines = as_json({"over_time": [[0.5, 1e20], [1, -2]], "runs": [1, 2, 3], "names": ["a", "b"], "none": []})
    assert lines.splitlines() == [
        "{",
        ' "over_time": [',
        "  [0.5, 1e+20],",
        "  [1, -2]",
        " ],",
        ' "runs": [1, 2, 3],',
        ' "names": [',
        '  "a",',
        '  "b"',
        " ],",
        ' "none": []',
        "}",
    ]
