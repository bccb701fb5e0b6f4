"""The metrics for Prometheus: they are the overview's figures, and the rules and the dashboard ask for nothing else."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from millpond.adapters.monitor.diagnosis.finding import Finding, State
from millpond.adapters.monitor.exposition import HELP, exposed
from millpond.adapters.monitor.kept.micro_batch import Limit
from millpond.adapters.monitor.kept.runs import Run
from millpond.adapters.monitor.overview import BatchSeen, OperatorSeen, Overview, SourceSeen, TaskWork
from millpond.adapters.monitor.query_monitor import QueryMonitor
from tests.inspect.test_state_inspector import filled

MONITORING = Path(__file__).parents[2] / "examples" / "monitoring"
LINE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\\n]|\\[\\n"])*",?)*)\} (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(text: str) -> Samples:
    """Return the samples of a text, each of which stands behind what it is."""
    found: Samples = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split()[2]
            assert line == f"# HELP {name} {HELP[name]}"
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {name} gauge"
        else:
            match = LINE.fullmatch(line)
            assert match is not None, line
            assert match[1] == name
            labels = frozenset((key, re.sub(r"\\(.)", r"\1", value)) for key, value in LABEL.findall(match[2]))
            assert (name, labels) not in found
            found[name, labels] = float(match[3])
    return found


@pytest.fixture(scope="module")
def overview(tmp_path_factory: pytest.TempPathFactory) -> Overview:
    """A query with something of everything."""
    query = filled(tmp_path_factory.mktemp("query"))
    seen = QueryMonitor(str(query.checkpoint), str(query.state)).look()
    work = {"open": 1.0}
    return replace(
        seen,
        name='the "best"\\one',
        open_since=seen.at - 1_500,
        restarts=3,
        run=Run("r", 1, 2, 2, "SerdeError", "no such serde [MILLPOND-SERDE]"),
        findings=(Finding(State.SKEW, "figures", None, "advice"),),
        batches=(*seen.batches[:-1], BatchSeen(2, 1, 2, 2_500, 70, 3.5, 28.0, {}, {})),
        sources=(SourceSeen("kafka", 5, 1.0, 12), SourceSeen("files", 5, 1.0, None)),
        operators=(OperatorSeen("shop", "operator.0", 2, 4, 70, 60, 4_000, None, 1, 2, 3, work, 9),),
        work=(TaskWork("shop", "operator.0", "0_1", 2, 35, 30, 2, 1, 7, 900, None, 1.5, 20.0, 3.0, 25.0),),
        limits=(Limit("disk", "0_1", 90, 100),),
    )


def test_all_figures_are_there_with_their_query_in_seconds_and_bytes(overview: Overview) -> None:
    found = read(exposed(overview))
    assert {name for name, _ in found} == set(HELP) - {
        "millpond_operator_stream_time_seconds", "millpond_task_state_bytes",
    }  # fmt: skip
    query = {"query": overview.query, "name": 'the "best"\\one'}

    def value(name: str, **labels: str) -> float:
        return found[f"millpond_{name}", frozenset({**query, **labels}.items())]

    operator = {"application": "shop", "operator": "operator.0"}
    assert value("batch") == 2
    assert value("open_batch_age_seconds") == 1.5
    assert value("query_restarts") == 3
    assert value("query_failed", code="MILLPOND-SERDE") == 1
    assert {state: value("finding", state=state) for state in State} == {state: state is State.SKEW for state in State}
    assert value("batch_duration_seconds") == 2.5
    assert value("batch_processed_rows_per_second") == 28
    assert value("source_behind_records", source="kafka") == 12
    assert value("operator_lag_seconds", **operator) == 4
    assert value("operator_records_waiting", **operator) == 3
    assert value("operator_files_retained", **operator) == 9
    assert value("task_process_seconds", **operator, task="0_1") == 0.02
    assert value("task_file_bytes", **operator, task="0_1") == 900
    assert value("limit_used_bytes", what="disk", task="0_1") == 90
    sizes = [value for (name, _), value in found.items() if name == "millpond_store_bytes"]
    assert sorted(sizes) == sorted(store.size for store in overview.stores)


def test_the_page_has_every_figure_with_its_labels(overview: Overview) -> None:
    page = (MONITORING.parents[1] / "docs" / "watching.md").read_text()
    rows = re.findall(r"^\| (`[^|]*) \| ([^|]*?) ?\|$", page.split("behind `millpond_`")[1], re.MULTILINE)
    told = {
        name: set(re.findall(r"`(\w+)`", labels)) for names, labels in rows for name in re.findall(r"`(\w+)`", names)
    }
    assert {f"millpond_{name}" for name in told} == set(HELP)
    for name, labels in read(exposed(overview)):
        assert {label for label, _ in labels} == {"query", "name", *told[name.removeprefix("millpond_")]}


def test_what_nobody_has_told_is_left_out(tmp_path: Path) -> None:
    query = filled(tmp_path)
    found = read(exposed(QueryMonitor(str(query.checkpoint)).look()))
    assert {name for name, _ in found} == {
        "millpond_batch", "millpond_commit_age_seconds", "millpond_finding", "millpond_batch_duration_seconds",
    }  # fmt: skip


def expressions() -> Iterator[str]:
    """Yield all that the rules and the dashboard ask for."""
    for group in rules()["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def rules() -> Any:
    return yaml.safe_load((MONITORING / "alerts.yml").read_text())


def dashboard() -> Any:
    return json.loads((MONITORING / "dashboard.json").read_text())


def test_rules_and_dashboard_ask_for_figures_and_labels_that_are_there(overview: Overview) -> None:
    labels: dict[str, set[str]] = {}
    for name, found in read(exposed(overview)):
        labels.setdefault(name, set()).update(label for label, _ in found)
    asked = list(expressions())
    for expression in asked:
        names = re.findall(r"\bmillpond_\w+", expression)
        assert names
        for name, inside in re.findall(r"(millpond_\w+)\{([^}]*)\}", expression):
            assert set(re.findall(r"(\w+)[=!]~?", inside)) <= labels[name]
        assert set(names) <= set(labels)
    for group in rules()["groups"]:
        for rule in group["rules"]:
            (name, *_) = re.findall(r"\bmillpond_\w+", rule["expr"])
            assert set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))) <= labels[name], rule["alert"]
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            (name, *_) = re.findall(r"\bmillpond_\w+", target["expr"])
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels[name], panel["title"]


def test_each_state_has_one_alert() -> None:
    of_states = [rule["expr"] for group in rules()["groups"] for rule in group["rules"] if "finding" in rule["expr"]]
    for state in State:
        telling = []
        for expression in of_states:
            match = re.search(r'state(=|!)~"([^"]+)"', expression)
            assert match is not None
            telling.append((state in match[2].split("|")) == (match[1] == "="))
        assert sum(telling) == 1, state
    named = {name for expression in of_states for name in re.findall(r"[a-z]+(?:-[a-z]+)+", expression)}
    assert named <= set(State)
