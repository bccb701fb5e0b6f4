"""On Spark Structured Streaming: verbs on DataFrames (``Millpond``), and topologies (``SparkStreams``).

A name is imported when it is first asked for: Spark starts several Python processes for each query, which import this
package only because the modules that they need are in it.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from millpond.errors import MissingPackageError

if TYPE_CHECKING:
    from millpond.adapters.spark.configuring import configure
    from millpond.adapters.spark.copies.warming import Warmth
    from millpond.adapters.spark.evolution.evolution import Evolution
    from millpond.adapters.spark.monitoring.watching import watch
    from millpond.adapters.spark.outputs.merge import MergeOutput
    from millpond.adapters.spark.outputs.output import FileOutput, FormatOutput, TableOutput
    from millpond.adapters.spark.reading.state_source import register_state_source
    from millpond.adapters.spark.rows.with_schema import with_schema
    from millpond.adapters.spark.session.checkpoint import Checkpoint
    from millpond.adapters.spark.streams import SparkStreams
    from millpond.adapters.spark.verbs.pond import Millpond
    from millpond.processors.calls.reports.batch_twin import Verification
    from millpond.processors.calls.reports.grace_advice import GraceAdvice
    from millpond.processors.calls.reports.what_if import WhatIf
    from millpond.processors.options.on_error import OnError
    from millpond.processors.verbs.matching.explanation import MatchExplanation
    from millpond.stores.evolution.verbs.verb_plan import EvolutionPlan

for _package, _module, _extra in (
    ("pyspark[sql]", "pyspark", "spark"),
    ("pandas", "pandas", "cluster"),
    ("protobuf", "google", "cluster"),
):
    if find_spec(_module) is None:
        raise MissingPackageError(f"running on Spark needs the package {_package}: pip install 'millpond[{_extra}]'")

__all__ = [
    "Checkpoint",
    "Evolution",
    "EvolutionPlan",
    "FileOutput",
    "FormatOutput",
    "GraceAdvice",
    "MatchExplanation",
    "MergeOutput",
    "Millpond",
    "OnError",
    "SparkStreams",
    "TableOutput",
    "Verification",
    "Warmth",
    "WhatIf",
    "configure",
    "register_state_source",
    "watch",
    "with_schema",
]

_MODULES = {
    "Checkpoint": "millpond.adapters.spark.session.checkpoint",
    "Evolution": "millpond.adapters.spark.evolution.evolution",
    "EvolutionPlan": "millpond.stores.evolution.verbs.verb_plan",
    "FileOutput": "millpond.adapters.spark.outputs.output",
    "FormatOutput": "millpond.adapters.spark.outputs.output",
    "GraceAdvice": "millpond.processors.calls.reports.grace_advice",
    "MatchExplanation": "millpond.processors.verbs.matching.explanation",
    "MergeOutput": "millpond.adapters.spark.outputs.merge",
    "Millpond": "millpond.adapters.spark.verbs.pond",
    "OnError": "millpond.processors.options.on_error",
    "SparkStreams": "millpond.adapters.spark.streams",
    "TableOutput": "millpond.adapters.spark.outputs.output",
    "Verification": "millpond.processors.calls.reports.batch_twin",
    "Warmth": "millpond.adapters.spark.copies.warming",
    "WhatIf": "millpond.processors.calls.reports.what_if",
    "configure": "millpond.adapters.spark.configuring",
    "register_state_source": "millpond.adapters.spark.reading.state_source",
    "watch": "millpond.adapters.spark.monitoring.watching",
    "with_schema": "millpond.adapters.spark.rows.with_schema",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
