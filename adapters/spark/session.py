"""What the operator needs of the Spark session, checked before a query starts.

Rule of this module: it looks at the session only, never at a topology.
"""

import shutil
import subprocess
import sys
from functools import cache
from typing import Final

from pyspark.sql import SparkSession

from millpond.errors import ConfigurationError

PROVIDER_CONF: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB_PROVIDER: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
MAX_BYTES_CONF: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_BATCH_BYTES: Final = 64 << 20


def prepare(session: SparkSession) -> None:
    """Check the state-store provider and the workers' Python, and bound the Arrow batches that carry blobs.

    Raises:
        ConfigurationError: the session cannot run the operator; the message says what to set.
    """
    provider = session.conf.get(PROVIDER_CONF, "")
    if provider != ROCKSDB_PROVIDER:
        raise ConfigurationError(
            f"the session keeps its state with {provider or 'the default provider'}, but Spark's operator for Python "
            f"state needs another: set {PROVIDER_CONF} to {ROCKSDB_PROVIDER}"
        )
    if (session.sparkContext.master or "").startswith("local"):
        _check_workers(session.sparkContext.pythonExec)
    # Spark counts rows, and a row here is a blob of about a megabyte: ten thousand of them do not fit into an array.
    if int(session.conf.get(MAX_BYTES_CONF, None) or 2**31 - 1) > MAX_BATCH_BYTES:
        session.conf.set(MAX_BYTES_CONF, str(MAX_BATCH_BYTES))


@cache
def _check_workers(python: str) -> None:
    """Whether the workers' Python, which need not be this one, finds what runs in a worker.

    Only workers on this machine can be asked. On a cluster, a query without it fails with Python's own message.
    """
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
        f"Spark's Python workers run {found or python}, which cannot run Millpond ({reason}); before the session "
        f"set the environment variable PYSPARK_PYTHON to a Python that has it, such as {sys.executable}"
    )
