"""The benchmark of restores measures what it says."""

from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from millpond.bench.durability.restore import Distance, print_results, run
from millpond.cli import app
from millpond.errors import ConfigurationError


def test_a_far_storage_takes_longer_by_its_answers_but_no_processor_time(tmp_path: Path) -> None:
    report = run(["memory"], 400, [1, 2], Distance(latency=0.05, bandwidth=1e9), rounds=1, directory=tmp_path)
    times = {(row["stores"], row["storage"]): row for row in report["results"]}
    assert list(times) == [(1, "local"), (1, "far"), (2, "local"), (2, "far")]
    for row in report["results"]:
        assert row["restore_s"] > (0.1 if row["storage"] == "far" else 0)
        assert row["processor_s"] < 0.2
    console = Console(record=True, width=100)
    print_results(console, report)
    assert console.export_text().count("memory") == 4
    assert list(tmp_path.iterdir()) == []


def test_too_few_rows_for_the_deltas_of_the_stores_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="199 rows are too few for 4 stores; each needs 50"):
        run(["memory"], 199, [1, 4], Distance(0, 1e9))


@pytest.mark.parametrize("option", [("--rows", "0"), ("--stores", "0"), ("--latency", "-1"), ("--bandwidth", "0")])
def test_numbers_that_make_no_sense_are_refused(option: tuple[str, str]) -> None:
    refused = CliRunner().invoke(app, ["bench", "restore", *option])
    assert refused.exit_code == 2
    assert option[0] in refused.output
