"""``df.millpond``, and how jobs show themselves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import Millpond, SparkStreams, configure
from millpond.errors import ConfigurationError
from millpond.processors import Consumed, Produced, StreamsBuilder

pytestmark = pytest.mark.spark

SETTINGS = ("spark.millpond.application_id", "spark.millpond.state_dir")


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Two rows of one key; their session is configured."""
    configure(spark)
    return spark.sql("select 'a' key, id, timestamp_seconds(id) at from range(2)")


@pytest.fixture
def settled(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A session that says whose state a stream has."""
    for name, value in zip(SETTINGS, ("shop", str(tmp_path / "state")), strict=True):
        spark.conf.set(name, value)
    yield spark
    for name in SETTINGS:
        spark.conf.unset(name)


def stream_of(rows: DataFrame, place: Path) -> DataFrame:
    rows.write.parquet(str(place))
    return rows.sparkSession.readStream.schema(rows.schema).parquet(str(place))


def test_a_verb_of_static_rows_needs_no_name_and_no_place(rows: Any, tmp_path: Path) -> None:
    pond = Millpond(application_id="same", state_dir=str(tmp_path))
    found = rows.millpond.latest(key="key", time="at", history="1 hour")
    assert found.collect() == pond.latest(rows, key="key", time="at", history="1 hour").collect()
    assert [row.id for row in found.collect()] == [0, 1]


def test_verbs_are_those_of_millpond_whose_first_input_are_rows(rows: Any) -> None:
    verbs = "aggregate, apply, asof_join, deduplicate, latest, lookup_join, over, stream_join, table_join, top_n"
    assert dir(rows.millpond) == verbs.split(", ")
    assert repr(rows.millpond) == f"df.millpond, with the verbs {verbs}"
    assert rows.millpond.latest.__doc__ == Millpond.latest.__doc__
    with pytest.raises(AttributeError, match=r"no verb 'lastest', only aggregate, .*; did you mean 'latest'\?"):
        _ = rows.millpond.lastest


def test_streams_of_a_session_share_the_millpond_that_its_settings_name(
    rows: Any, settled: SparkSession, tmp_path: Path
) -> None:
    stream: Any = stream_of(rows, tmp_path / "in")
    stream.millpond.latest(key="key", time="at", history="1 hour", name="newest")
    with pytest.raises(ConfigurationError, match="has a verb called 'newest' already"):
        stream.millpond.latest(key="key", time="at", history="1 hour", name="newest")


def test_a_stream_whose_session_names_no_state_takes_a_millpond(rows: Any, tmp_path: Path) -> None:
    stream: Any = stream_of(rows, tmp_path / "in")
    with pytest.raises(ConfigurationError, match=r"set spark\.millpond\.application_id and .*df\.millpond\(Millpond\("):
        stream.millpond.latest(key="key", time="at", history="1 hour")
    pond = Millpond(application_id="shop", state_dir=str(tmp_path / "state"))
    stream.millpond(pond).latest(key="key", time="at", history="1 hour", name="newest")
    assert "verbs=['newest']" in repr(pond)
    with pytest.raises(
        ConfigurationError, match=r"takes a Millpond, not 'key'; for a verb, write df\.millpond\.latest"
    ):
        stream.millpond("key")


def test_a_millpond_shows_its_name_its_place_its_backend_and_its_verbs(rows: DataFrame, tmp_path: Path) -> None:
    pond = Millpond(application_id="shop", state_dir=f"{tmp_path}/<state>", backend="lmdb")
    shown: Any = pond
    assert repr(pond) == f"Millpond(application_id='shop', state_dir='{tmp_path}/<state>', backend='lmdb', verbs=[])"
    assert "<table" not in shown._repr_html_()
    pond.latest(rows, key="key", time="at", history="1 hour", name="newest")
    html = shown._repr_html_()
    assert f"state_dir <code>{tmp_path}/&lt;state&gt;</code>" in html
    assert "history 1 h" in html
    assert [name for name in ("newest", "latest", "clock", "late rows") if f">{name}<" not in html] == []


def test_no_secret_of_a_place_is_shown() -> None:
    pond = Millpond(application_id="shop", state_dir="s3://key:secret@bucket/state?region=eu-central-1", backend="lmdb")
    assert "secret" not in repr(pond)


def test_streams_show_the_sinks_that_they_write(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("words", Consumed("string", "int64")).to("out", Produced(schema="key string, value long"))
    streams: Any = SparkStreams(builder.build(), application_id="words", state_dir=str(tmp_path), backend="memory")
    expected = f"SparkStreams(application_id='words', state_dir='{tmp_path}', backend='memory', sinks=['out'])"
    assert repr(streams) == expected
    assert "sinks <code>out</code>" in streams._repr_html_()
