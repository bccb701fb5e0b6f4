"""The process that forks Spark's Python workers, with what each of them imports imported once: see ``quick_spark.py``.

Where Spark calls for ``pyspark.daemon``, this stands in for it.
"""

import gc
import runpy
from contextlib import suppress
from importlib import import_module

for name in (
    "pyspark.worker",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "millpond.adapters.spark.operator.task_operator",
    "millpond.adapters.spark.verbs.sink",
    "millpond.adapters.lmdb",
    "millpond.adapters.rocksdb",
):
    # Releases of Spark have other modules, and so has a branch on which a module has moved.
    with suppress(ImportError):
        import_module(name)
gc.freeze()
runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
