"""The benchmark of restores measures what it says."""

from pathlib import Path

from rich.console import Console

from millpond.bench.task_restore import Distance, print_results, run


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
