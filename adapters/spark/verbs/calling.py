"""``verb``: what every verb of ``Millpond`` is called through.

Rule of this module: it knows no verb by name.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, cast

from pyspark.sql import DataFrame

from millpond.adapters.spark.session.pipelines import analyzing, in_pipeline
from millpond.adapters.spark.session.session import check_spec
from millpond.adapters.spark.verbs.frames.inputs import check_rows
from millpond.adapters.spark.verbs.spelled_names import spelled
from millpond.processors.calls.calling import named_in_errors
from millpond.stores.evolution.matching import check_said

_Arguments = ParamSpec("_Arguments")


def verb(method: Callable[_Arguments, DataFrame]) -> Callable[_Arguments, DataFrame]:
    """Name the verb in its errors, spell names as rows have them, and let it be called in a pipeline, too."""
    names, by_name = list(signature(method).parameters), cast("Callable[..., DataFrame]", method)
    rows = [name for name, one in signature(method).parameters.items() if one.annotation is DataFrame]

    @wraps(method)
    def called(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> DataFrame:
        named: dict[str, Any] = {**dict(zip(names, arguments, strict=False)), **options}
        for name in rows:
            check_rows(name, named[name])
        renamed = named.get("renamed")
        check_said({} if renamed is None else renamed, named.get("dropped", ()))
        given = (*arguments, *options.values())
        every = [one for some in given for one in (some.values() if isinstance(some, Mapping) else [some])]
        frames = [one for one in every if isinstance(one, DataFrame)]
        if not frames or not in_pipeline(frames[0].sparkSession):
            return by_name(**spelled(named))
        from millpond.adapters.spark.session.pipeline_tables import after_tables

        check_spec(frames[0].sparkSession)
        with analyzing(frames[0].sparkSession):
            return after_tables(by_name(**spelled(named)))

    return named_in_errors(called)
