"""No error that quotes a secret of the state directory's URI shows it, whether it comes from a worker or the driver."""

import traceback
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from millpond.adapters.spark import SparkStreams
from millpond.errors import MillpondError
from millpond.processors import Consumed, StreamsBuilder, Topology

pytestmark = pytest.mark.spark

SECRET = "n0t/to be+shown=="
QUOTED = quote(SECRET, safe="")
INPUT = "key string, value long, timestamp long"


def failing(*, counts: bool = True) -> Topology:
    """Return a topology that fails like a library that quotes its input: where state is open, or on the map side."""

    def fails(_: int) -> NoReturn:
        raise OSError(5, f"no answer from https://storage.example/x?sig={QUOTED}, signed with {SECRET}")

    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "int64"))
    (words.group_by_key().count().to_stream() if counts else words).map_values(fails).to("counts")
    return builder.build()


def shown(error: BaseException | None) -> list[str]:
    text = "".join(traceback.format_exception(error)) + str(error)
    assert "***" in text
    return [spelled for spelled in (SECRET, QUOTED, quote(SECRET), quote(QUOTED)) if spelled in text]


@pytest.mark.slow
@pytest.mark.parametrize("counts", [True, False])
def test_an_error_that_quotes_a_secret_of_the_storage_leaves_driver_and_executor_without_it(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, counts: bool
) -> None:
    options: dict[str, Any] = {"application_id": "masked", "partitions": 1, "backend": "memory"}
    words = tmp_path / "words"
    spark.createDataFrame([("a", 1, 0)], INPUT).coalesce(1).write.parquet(str(words))
    rows = spark.readStream.schema(INPUT).parquet(str(words))
    found = SparkStreams(failing(counts=counts), state_dir=f"file://{tmp_path}/state?token={QUOTED}", **options)
    writer = found.transform({"words": rows}).writeStream.format("parquet")
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    with pytest.raises(StreamingQueryException, match="no answer from") as caught:
        query.awaitTermination()
    assert shown(caught.value) == []
    assert shown(query.exception()) == []
    unreachable = f"s3://key:{QUOTED}@b/x?endpoint_override=127.0.0.1:1&scheme=http&max_attempts=1&region=x"
    streams = SparkStreams(failing(), state_dir=unreachable, **options)
    streams.transform({"words": rows})  # with a warning
    assert "is built without a look at its state" in caplog.text
    with pytest.raises(MillpondError) as refused:
        streams.dead_letters()
    text = caplog.text + "".join(traceback.format_exception(refused.value))
    assert [spelled for spelled in (SECRET, QUOTED) if spelled in text] == []
