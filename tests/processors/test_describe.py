"""The description of a topology."""

from millpond.processors import (
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    Produced,
    StreamJoined,
    StreamsBuilder,
    Topology,
)
from millpond.stores.specs.store_spec import StoreKind


def _topology() -> Topology:
    builder = StreamsBuilder()
    rates = builder.table(
        "rates",
        Consumed(name="rates-table"),
        Materialized.versioned("rates", history_retention=86_400_000, backend="lmdb"),
    )
    orders = builder.stream("orders", Consumed(name="orders"))
    rated = orders.join(rates, lambda order, rate: [order, rate], Joined(name="rated"))
    by_user = rated.select_key(lambda key, value: value[0], name="by-user")
    grouped = by_user.group_by_key(Grouped("string", "json", "users"))
    counts = grouped.count(Materialized("counts", StoreKind.TIMESTAMPED_KEY_VALUE))
    counts.to("out", Produced(name="sink"))
    return builder.build()


def test_the_text_tells_sub_topologies_nodes_and_topics() -> None:
    text = _topology().describe()
    assert text.index("Sub-topology 0") < text.index("orders reads topic orders") < text.index("Sub-topology 1")
    assert "  rated\n    uses rates\n    --> by-user\n" in text
    assert "  sink writes topic out\n" in text
    assert text.index("Sub-topology 1") < text.index("sink writes topic out")
    assert text.endswith("Repartition topic users-repartition: from sub-topology 0 to 1\n")


def test_the_text_tells_each_store_s_kind_backend_and_whether_it_is_versioned() -> None:
    text = _topology().describe()
    assert "  store rates: versioned, backend lmdb, history retention 86400000 ms\n" in text
    assert "  store counts: timestamped-key-value, not versioned, backend of the job\n" in text


def test_a_repartition_topic_is_named_at_both_ends() -> None:
    text = _topology().describe()
    assert " writes repartition topic users-repartition\n" in text
    assert " reads repartition topic users-repartition\n" in text


def test_a_global_table_is_read_whole_by_every_task() -> None:
    builder = StreamsBuilder()
    names = builder.global_table("names")
    builder.stream("in").join(names, lambda left, right: left).to("out", Produced(value_serde="json"))
    assert " reads topic names, all of it in every task\n" in builder.build().describe()


def test_window_stores_show_their_retention() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    joined = left.join(right, lambda a, b: a, StreamJoined(name="pairs"), windows=JoinWindows(10, 20, 5))
    joined.to("out", Produced(value_serde="json"))
    assert "pairs-this-join-store: window, not versioned, backend of the job, retention 35 ms, window size 30 ms, " in (
        builder.build().describe()
    )


def test_the_mermaid_graph_has_a_subgraph_for_each_sub_topology() -> None:
    lines = _topology().mermaid().splitlines()
    assert lines[0] == "flowchart TD"
    assert [line.strip() for line in lines if "subgraph" in line] == [
        'subgraph sub0["Sub-topology 0"]',
        'subgraph sub1["Sub-topology 1"]',
    ]
    assert sum(line.strip() == "end" for line in lines) == 2


def test_the_mermaid_graph_draws_topics_stores_and_edges() -> None:
    text = _topology().mermaid()
    ids = {line.strip().split("[")[0]: line for line in text.splitlines() if "[" in line and "-->" not in line}
    rated = next(id_ for id_, line in ids.items() if '["rated"]' in line)
    store = next(id_ for id_, line in ids.items() if '[("rates<br/>versioned<br/>' in line)
    assert f"  {rated} -.- {store}\n" in text
    assert '(["topic<br/>orders"])' in text
    assert '[["repartition topic<br/>users-repartition"]]' in text


def test_the_repartition_topic_has_one_edge_in_and_one_out() -> None:
    lines = [line.strip() for line in _topology().mermaid().splitlines()]
    topic = next(line.split("[")[0] for line in lines if "users-repartition" in line and "[[" in line)
    edges = [line for line in lines if "-->" in line]
    assert sum(edge.endswith(f"--> {topic}") for edge in edges) == 1
    assert sum(edge.startswith(f"{topic} -->") for edge in edges) == 1


def test_names_that_mermaid_could_not_read_are_escaped() -> None:
    builder = StreamsBuilder()
    builder.stream('a "quoted" <topic>').to("out")
    assert "a &quot;quoted&quot; &lt;topic&gt;" in builder.build().mermaid()


def test_every_edge_of_the_mermaid_graph_joins_two_drawn_things() -> None:
    lines = [line.strip() for line in _topology().mermaid().splitlines()]
    arrows = [line.replace(" -.- ", " --> ").split(" --> ") for line in lines if "-->" in line or "-.-" in line]
    drawn = {line.split("[")[0].split("(")[0] for line in lines if "[" in line}
    assert {end for arrow in arrows for end in arrow} <= drawn
