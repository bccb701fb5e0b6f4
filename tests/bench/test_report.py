"""What stands beside the figures of every benchmark."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from millpond.bench.report import write_json


def test_figures_name_the_command_that_measured_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["bench", "stores", "--kind", "versioned", "--directory", "a disk", "--json", "out.json"]
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/millpond", *arguments])
    write_json(tmp_path / "new" / "out.json", "stores", {"rounds": 5})
    figures = json.loads((tmp_path / "new" / "out.json").read_text())
    assert shlex.split(figures["command"]) == ["millpond", *arguments]
    assert figures["benchmark"] == "stores"
    assert figures["rounds"] == 5
    assert {"cpu", "cores", "memory_gib", "system", "python", "packages"} <= figures["machine"].keys()
