"""What Millpond needs from the Spark session, checked before a query starts.

Rule of this module: it looks at the session only, never at a topology. Workers run in every query; state-store
provider and blobs matter only where there is an operator.
"""

import shutil
import subprocess
import sys
from functools import cache
from typing import Final

from pyspark.sql import SparkSession

from millpond.errors import ConfigurationError
from millpond.processors.distribution.exchange import BLOB_BYTES

PROVIDER_CONF: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB_PROVIDER: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
MAX_BYTES_CONF: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_ROWS_CONF: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
MAX_BATCH_BYTES: Final = 1 << 30
"""The most bytes in an Arrow batch of blobs: half of what a binary column holds, as buffers grow by doubling."""


def check_workers(session: SparkSession) -> None:
    """Check that the workers' Python, which need not be this one, can import what runs in a worker.

    Only workers on this machine can be checked. On a cluster, a query that cannot fails with Python's own message.

    Raises:
        ConfigurationError: it cannot; the message names the environment variable to set.
    """
    if (session.sparkContext.master or "").startswith("local"):
        _check_python(session.sparkContext.pythonExec)


def check_operator(session: SparkSession) -> None:
    """Check the state-store provider, and the bounds of the Arrow batches that carry blobs.

    Raises:
        ConfigurationError: the session cannot run the operator; the message says what to set.
    """
    provider = session.conf.get(PROVIDER_CONF, "")
    if provider != ROCKSDB_PROVIDER:
        raise ConfigurationError(
            f"the session keeps its state with {provider or 'the default provider'}, but Spark's operator for Python "
            f"state needs another: set {PROVIDER_CONF} to {ROCKSDB_PROVIDER}"
        )
    rows = int(session.conf.get(MAX_ROWS_CONF) or 0)
    fits = 0 < rows <= MAX_BATCH_BYTES // BLOB_BYTES
    if not fits and _bytes(session.conf.get(MAX_BYTES_CONF) or "") > MAX_BATCH_BYTES:
        raise ConfigurationError(
            f"{MAX_ROWS_CONF} is {rows}, but a row here is a blob of {BLOB_BYTES >> 10} KiB, and so many of them may "
            f"not fit into one Arrow batch; set it to {MAX_BATCH_BYTES // BLOB_BYTES} or less, or set {MAX_BYTES_CONF} "
            "to 64m"
        )


def start_coordinator(session: SparkSession) -> None:
    """Start the coordinator of state stores, which a session that has not run a streaming query lacks.

    Spark starts it with the manager of streaming queries, which it makes when that is first asked for. The state stores
    of batch queries look it up as well, and before SPARK-58973 they fail without it.
    """
    _ = session.streams.active


def _bytes(size: str) -> int:
    """A size as Spark writes it: ``67108864b``, ``64m``."""
    digits = size.rstrip("bkmgtpBKMGTP")
    unit = size[len(digits) :].lower()[:1] or "b"
    return int(digits or 0) << 10 * "bkmgtp".index(unit)


@cache
def _check_python(python: str) -> None:
    found = shutil.which(python)
    if found == sys.executable:
        return
    asked = [found or python, "-c", "import millpond.adapters.spark.operator"]
    try:
        failed = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    else:
        if failed.returncode == 0:
            return
        reason = (failed.stderr.strip().splitlines() or ["no message"])[-1]
    raise ConfigurationError(
        f"Spark's Python workers run {found or python}, which cannot run Millpond ({reason}); before "
        f"starting the session, set the environment variable PYSPARK_PYTHON to a Python that has it, such as "
        f"{sys.executable}"
    )
