"""``millpond advise``: from a description or a checkpoint to a backend, measured in earnest at tiny sizes."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millpond.bench.advice.description import Description
from millpond.bench.advice.judgement import judge
from millpond.bench.advice.measuring import Measurements
from millpond.bench.advice.running_job import known_of
from millpond.bench.advice.tables import to_dict
from millpond.bench.pages.advice import advice_page
from millpond.bench.report import document
from millpond.cli import app
from millpond.errors import ConfigurationError
from tests.bench.test_advice_judgement import backend
from tests.bench.test_bench_pages import Page
from tests.inspect.test_state_inspector import filled

TINY = ("--keys", "500", "--value-size", "20", "--batch", "100", "--seconds", "1", "--repeat", "1")


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["advise", *map(str, arguments)])


def advised(*arguments: object) -> Any:
    result = run(*arguments, "--json", "-")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@dataclass(frozen=True)
class Advice:
    """The findings on the built-in backends, and the page about them."""

    found: Any
    page: str


@pytest.fixture(scope="module")
def advice(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    place, stores = tmp_path_factory.mktemp("advice"), tmp_path_factory.mktemp("stores")
    html, path = place / "pages" / "advice.html", place / "advice.json"
    shares = ("--scans", "0.1", "--expiring", "0.4", "--directory", stores)
    result = run(*TINY, *shares, "--html", html, "--json", path)
    assert result.exit_code == 0, result.output
    assert list(stores.iterdir()) == []
    return Advice(json.loads(path.read_text()), html.read_text())


def test_the_built_in_backends_are_measured_and_one_is_advised(advice: Advice) -> None:
    found = advice.found
    assert found["benchmark"] == "advise"
    assert {one["backend"] for one in found["backends"]} == {"rocksdb", "lmdb", "memory"}
    for one in found["backends"]:
        assert one["failure"] is None
        assert one["times"]["rows"] == 500
        assert one["per_operation_us"]["low"] <= one["per_operation_us"]["median"] <= one["per_operation_us"]["high"]
        assert one["room"]["memory_per_row"] >= 36
        assert one["times"]["expire"]["median"] > 0
    assert found["advice"]["backend"].partition(":")[0] in {"rocksdb", "lmdb", "memory"}
    assert found["advice"]["reasons"]
    assert any("half of this machine's memory" in line for line in found["assumed"])


def test_nothing_fits_is_exit_code_1_with_the_figures() -> None:
    result = run(*TINY, "--memory", "1", "--backend", "memory")
    assert result.exit_code == 1
    assert "Nothing that was measured fits" in result.stdout
    assert "keeps all rows in memory: 500 of" in result.stdout


def test_a_checkpoint_describes_the_job(tmp_path: Path) -> None:
    query = filled(tmp_path)
    known = known_of(str(query.checkpoint), str(query.state))
    assert known.keys == sum(file.rows for one in query.manifests for file in one.files)
    assert known.key_bytes is not None
    assert known.value_bytes is not None
    assert known_of(str(query.checkpoint), None).key_bytes is None
    given = ("--state-dir", query.state, "--value-size", "7", "--backend", "memory", "--seconds", "1", "--repeat", "1")
    with pytest.raises(ConfigurationError, match="--state-dir is that of a query; give its CHECKPOINT, too"):
        raise run("--keys", "5", *given).exception
    found = advised(query.checkpoint, *given)
    assert found["description"]["keys"] == known.keys
    assert found["description"]["key_bytes"] == known.key_bytes
    assert found["description"]["value_bytes"] == 7
    assert any("durable files of 2 tasks" in line for line in found["assumed"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "say how many rows"),
        (("--keys", "banana"), "--keys is 'banana'"),
        (("--keys", "0"), "--keys is 0"),
        (("--keys", "5", "--memory", "0"), "--memory is 0"),
        (("--keys", "5", "--memory", "much"), "--memory is 'much'"),
        (("--keys", "5", "--reads", "1.5"), "--reads is 1.5"),
        (("--keys", "5", "--backend", "nosuch"), "no backend 'nosuch'"),
        (("--keys", "5", "--backend", "lmdb://?password=hunter2"), "no option 'password'"),
        (("--keys", "5", "--measurements", "nosuch.json"), "cannot be read"),
        (("--keys", "5", "--directory", "no/such"), "is no directory"),
        (("no/checkpoint",), "no/checkpoint"),
    ],
)
def test_nonsense_is_refused_before_anything_is_measured(arguments: tuple[str, ...], message: str) -> None:
    error = run(*arguments).exception
    assert isinstance(error, ConfigurationError)
    assert message in str(error)
    assert "hunter2" not in str(error)


def test_earlier_measurements_are_taken_if_they_speak(tmp_path: Path) -> None:
    path = tmp_path / "engines.json"
    bench = ["bench", "engines", "--backend", "memory", "--workload", "readrandom", "--workload", "overwrite"]
    sizes = ["--records", "200", "--operations", "100", "--batch", "100", "--value-size", "20", "--repeat", "1"]
    assert CliRunner().invoke(app, [*bench, *sizes, "--json", str(path)]).exit_code == 0
    (found,) = advised(*TINY, "--backend", "memory", "--measurements", path)["backends"]
    assert found["times"]["rows"] == 200
    refused = run(*TINY, "--value-size", "900", "--measurements", path).exception
    assert isinstance(refused, ConfigurationError)
    assert "value_bytes 20, and 900 are described" in str(refused)
    content = json.loads(path.read_text())
    content["machine"]["cores"] = 4096
    path.write_text(json.dumps(content))
    refused = run(*TINY, "--measurements", path).exception
    assert isinstance(refused, ConfigurationError)
    assert "measured on another machine" in str(refused)


def test_the_page_has_what_the_file_has_and_needs_nothing_else(advice: Advice) -> None:
    text, found = advice.page, advice.found
    page = Page(text)
    assert f"Use {found['advice']['backend']}" in page.of("h2")
    assert set(page.of("th")) >= {one["url"] for one in found["backends"]}
    lines = [*found["advice"]["reasons"], *found["advice"]["changes"], *found["caveats"], *found["assumed"]]
    assert set(page.of("li")) >= set(lines)
    assert found["command"] in page.of("code")
    assert "25% reads, 25% writes, 10% scans, 40% expiring" in text
    assert "@media (prefers-color-scheme: dark)" in text
    assert not re.search(r"https?:|url\(|@import|@font-face|<script|<img", text)


def test_a_page_of_what_does_not_fit_says_why_and_escapes_it() -> None:
    job = Description(1_000, 16, 100, 0.5, 0.0, 50, 10**9, 10**9)
    failed = replace(backend("lmdb://?map_size=1", 1), failure="no <room> & none to come")
    notes = Measurements((failed,), {}, 10)
    found = {**document("advise", to_dict(job, [], notes, judge(job, [failed]), [])), "command": "millpond <advise>"}
    page = Page(advice_page(found))
    assert "Nothing that was measured fits" in page.of("h2")
    assert "Not lmdb://?map_size=1: it could not be measured: no <room> & none to come." in page.of("li")
    assert page.of("code") == ["millpond <advise>"]
