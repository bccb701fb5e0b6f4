"""On Spark Structured Streaming: verbs on DataFrames (``Millpond``), and topologies (``SparkStreams``)."""

from importlib.util import find_spec

from millpond.errors import ConfigurationError

for _package, _module in (("pyspark[sql]", "pyspark"), ("pandas", "pandas"), ("protobuf", "google")):
    if find_spec(_module) is None:
        raise ConfigurationError(f"running on Spark needs the package {_package}: pip install 'millpond[spark]'")

from millpond.adapters.spark.checkpoint import Checkpoint  # noqa: E402
from millpond.adapters.spark.evolution.evolution import Evolution  # noqa: E402
from millpond.adapters.spark.evolution.warming import Warmth  # noqa: E402
from millpond.adapters.spark.monitoring.watching import watch  # noqa: E402
from millpond.adapters.spark.outputs.output import FileOutput, FormatOutput, TableOutput  # noqa: E402
from millpond.adapters.spark.session import configure  # noqa: E402
from millpond.adapters.spark.state_source import register_state_source  # noqa: E402
from millpond.adapters.spark.streams import SparkStreams  # noqa: E402
from millpond.adapters.spark.verbs.pond import Millpond  # noqa: E402
from millpond.processors.options.on_error import OnError  # noqa: E402

__all__ = [
    "Checkpoint",
    "Evolution",
    "FileOutput",
    "FormatOutput",
    "Millpond",
    "OnError",
    "SparkStreams",
    "TableOutput",
    "Warmth",
    "configure",
    "register_state_source",
    "watch",
]
