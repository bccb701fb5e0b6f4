"""Millpond's needs of the Spark session, checked before a query starts; ``configure`` sets them.

Rule of this module: it looks at the session only, never at a topology, and is the only one that knows Spark Connect,
whose sessions have no JVM. Workers run in every query; state-store provider, blobs and shuffle partitions matter only
where there is an operator.
"""

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Final
from weakref import WeakSet

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millpond.adapters.spark.session.pipelines import check_asking
from millpond.adapters.spark.session.sent import in_workers
from millpond.errors import PerformanceWarning, SparkSessionError, WorkerPythonError
from millpond.processors.distribution.exchange import BLOB_BYTES

PROVIDER_CONF: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB_PROVIDER: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGELOG_CONF: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
PARTITIONS_CONF: Final = "spark.sql.shuffle.partitions"
PYTHON_CONF: Final = "spark.pyspark.python"
MAX_BYTES_CONF: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_ROWS_CONF: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
MAX_BATCH_BYTES: Final = 1 << 30
"""The most bytes in an Arrow batch of blobs: half of what a binary column holds, as buffers grow by doubling."""

MAX_PARTITIONS_PER_CORE: Final = 8
"""More shuffle partitions than that are worth a warning: a micro-batch starts the operator in each of them."""

_IN_SPEC: Final = {PROVIDER_CONF: ROCKSDB_PROVIDER, CHANGELOG_CONF: "true", PARTITIONS_CONF: "2"}
"""The settings that the spec of a Declarative Pipeline must have."""

_able: WeakSet[SparkSession] = WeakSet()
"""Connect sessions whose workers are known to run Millpond."""

_warned: WeakSet[SparkSession] = WeakSet()
"""Sessions whose users know that they have too many shuffle partitions."""


def check_spec(session: SparkSession) -> None:
    """Check that the spec of a pipeline has set what nothing in the pipeline can set.

    Raises:
        ConfigurationError: it has not, and the message has the lines to write; or PySpark lets verbs ask nothing there.
    """
    check_asking()
    there = {name: session.conf.get(name, None) for name in _IN_SPEC}
    lacking = [name for name, value in there.items() if value is None]
    if there[PROVIDER_CONF] != ROCKSDB_PROVIDER:
        lacking = [PROVIDER_CONF, *(name for name in lacking if name != PROVIDER_CONF)]
    if lacking:
        lines = ", ".join(f'{name}: "{_IN_SPEC[name]}"' for name in lacking)
        raise SparkSessionError(
            f"only the spec of a pipeline sets its session; write into its configuration, with about one shuffle "
            f"partition per core: {lines}"
        )


def active_session(purpose: str) -> SparkSession:
    """Return the session of this thread, or else the one that the process has started.

    Raises:
        ConfigurationError: there is none, to do ``purpose`` with.
    """
    try:
        return SparkSession.active()
    except PySparkException as error:
        raise SparkSessionError(
            f"there is no Spark session; start one before {purpose}: SparkSession.builder.getOrCreate()"
        ) from error


def check_workers(session: SparkSession) -> None:
    """Check that the workers' Python, which need not be this one, can import what runs in a worker.

    Only workers on the machine of Spark's driver can be checked. On a cluster, a query that cannot fails with Python's
    own message. A session of Spark Connect does not tell which Python they run, so it is asked, once, by a small query.

    Raises:
        ConfigurationError: it cannot; the message names the environment variable to set.
    """
    if not _is_local(session):
        return
    if hasattr(session, "sparkContext"):
        _check_local_workers(session.sparkContext.pythonExec)
    elif session not in _able:
        _check_by_query(session)
        _able.add(session)


def give_own_python(session: SparkSession) -> str | None:
    """Have the workers run the Python of this program where they run on its machine and nobody has chosen another.

    Spark's own choice is the ``python3`` of the ``PATH``, another one where the environment was not activated.

    Returns:
        That Python; None if nothing has changed.
    """
    chosen = "PYSPARK_PYTHON" in os.environ or session.conf.get(PYTHON_CONF, None)
    if not hasattr(session, "sparkContext") or not _is_local(session) or chosen or not sys.executable:
        return None
    context = session.sparkContext
    if shutil.which(context.pythonExec) == sys.executable:
        return None
    context.pythonExec = sys.executable
    return sys.executable


def check_operator(session: SparkSession) -> None:
    """Check the state-store provider, and the bounds of the Arrow batches that carry blobs.

    Raises:
        ConfigurationError: the session cannot run the operator; the message says what to set.

    Warns:
        PerformanceWarning: there are far more shuffle partitions than cores; once for each session.
    """
    _check_driver(session)
    provider = session.conf.get(PROVIDER_CONF, "")
    if provider != ROCKSDB_PROVIDER:
        raise SparkSessionError(
            f"the session keeps its state with {provider or 'the default provider'}, but Spark's operator for Python "
            f"state needs another: call millpond.adapters.spark.configure(spark), or set {PROVIDER_CONF} to "
            f"{ROCKSDB_PROVIDER}"
        )
    rows = int(session.conf.get(MAX_ROWS_CONF) or 0)
    fits = 0 < rows <= MAX_BATCH_BYTES // BLOB_BYTES
    if not fits and _bytes(session.conf.get(MAX_BYTES_CONF) or "") > MAX_BATCH_BYTES:
        raise SparkSessionError(
            f"{MAX_ROWS_CONF} is {rows}, but a row here is a blob of {BLOB_BYTES >> 10} KiB, and so many of them may "
            f"not fit into one Arrow batch; set it to {MAX_BATCH_BYTES // BLOB_BYTES} or less, or set {MAX_BYTES_CONF} "
            "to 64m"
        )
    _warn_of_partitions(session)


def check_has_jvm(session: SparkSession, purpose: str) -> None:
    """Check that the session has Spark's JVM at hand.

    Raises:
        ConfigurationError: it is one of Spark Connect, which cannot do ``purpose``.
    """
    if not hasattr(session, "sparkContext"):
        raise SparkSessionError(
            f"a session of Spark Connect does not reach what is needed for {purpose}; do it in a classic session, such "
            "as SparkSession.builder.master(...) makes"
        )


def start_coordinator(session: SparkSession) -> None:
    """Start the coordinator of state stores, which a session that has not run a streaming query lacks.

    Spark starts it with the manager of streaming queries, which it makes when that is first asked for. The state stores
    of batch queries look it up as well, and before SPARK-58973 they fail without it.
    """
    _ = session.streams.active


def default_partitions(session: SparkSession) -> int:
    """Return the shuffle partitions, which are set to one per core if nobody has set them.

    Spark's own default, 200, would start the operator in each of them in every micro-batch, and the checkpoint of a new
    query would keep the number. Queries that have a checkpoint keep the number that it has.
    """
    if session.conf.get(PARTITIONS_CONF, None) is None:
        session.conf.set(PARTITIONS_CONF, str(_parallelism(session)))
    return int(session.conf.get(PARTITIONS_CONF) or 1)


def _warn_of_partitions(session: SparkSession) -> None:
    partitions = int(session.conf.get(PARTITIONS_CONF) or 200)
    if session in _warned or partitions <= MAX_PARTITIONS_PER_CORE:
        return
    cores = _cores(session)
    if cores is None or partitions <= MAX_PARTITIONS_PER_CORE * cores:
        return
    _warned.add(session)
    warnings.warn(
        f"{PARTITIONS_CONF} is {partitions}, but this session has {cores} cores: every micro-batch starts Spark's "
        f"operator for Python state in each of the {partitions} partitions, whether it has rows or not, which can take "
        f"minutes; set it to about one per core, spark.conf.set({PARTITIONS_CONF!r}, {cores}), before the query's "
        "first start, because its checkpoint keeps the number",
        PerformanceWarning,
        stacklevel=2,
    )


def _cores(session: SparkSession) -> int | None:
    """Return how many tasks run at once where that is fixed, in a local session; None if it is not known."""
    return _parallelism(session) if _is_local(session) else None


def _parallelism(session: SparkSession) -> int:
    """Return how many tasks run at once, as far as Spark knows: the cores of a local session, or of the executors.

    Spark divides a range by this number, and a plan tells it to all kinds of sessions without running anything.
    """
    plan = session.sql("explain select * from range(1)").collect()[0][0]
    found = re.search(r"splits=(\d+)", plan)
    return 1 if found is None else int(found[1])


def _is_local(session: SparkSession) -> bool:
    """Return whether Spark's workers run on the machine of its driver, which for Spark Connect is the server's."""
    return (session.conf.get("spark.master", "") or "").startswith("local")


def _bytes(size: str) -> int:
    """Return a size as Spark writes it: ``67108864b``, ``64m``."""
    digits = size.rstrip("bkmgtpBKMGTP")
    unit = size[len(digits) :].lower()[:1] or "b"
    return int(digits or 0) << 10 * "bkmgtp".index(unit)


def _check_by_query(session: SparkSession) -> None:
    # A worker reads a function of this module by importing the module.
    try:
        in_workers(session.range(1), _unchanged, "id long").collect()
    except PySparkException as error:
        said = str(error).strip()
        found = re.search(r"\b\w+Error: [^\n]*", said)
        reason = found[0] if found else said.partition("\n")[0]
        raise WorkerPythonError(
            f"the Python workers of the Spark Connect server cannot run Millpond ({reason}); before starting the "
            f"server, set the environment variable PYSPARK_PYTHON, there, to a Python that has it, such as "
            f"{sys.executable} if the server is on this machine"
        ) from error


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def _check_local_workers(python: str) -> None:
    reason = _why_not(python)
    if reason is not None:
        raise WorkerPythonError(
            f"Spark's Python workers run {shutil.which(python) or python}, which cannot run Millpond ({reason}); call "
            "millpond.adapters.spark.configure(spark), which has them run the Python of this program, or, if the "
            "environment variable PYSPARK_PYTHON names another, set that to a Python with Millpond, such as "
            f"{sys.executable}, before the session starts"
        )


def _check_driver(session: SparkSession) -> None:
    """Check the Python that Spark starts beside a cluster's driver, once for each operator, before that runs.

    It gets what ``--py-files`` has brought.

    Raises:
        ConfigurationError: it cannot; the message says what is to be there.
    """
    if not hasattr(session, "sparkContext") or _is_local(session):
        return
    python, files = session.sparkContext.pythonExec, _py_files()
    reason = _why_not(python, *files)
    if reason is not None:
        raise WorkerPythonError(
            f"Spark starts {python} for a verb where its driver runs, too, and that cannot run Millpond ({reason}); "
            f"have a Python with Millpond there at {python}, such as that of the archive, unpacked where the driver "
            "starts: mkdir env && tar -xzf env.tar.gz -C env"
        )
    environment = session.sparkContext.environment
    known = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one and one not in files]
    if files:
        # Spark has them on the path of executors' Pythons and of the driver's program, and not of this one.
        environment["PYTHONPATH"] = os.pathsep.join([*files, *known])


def _py_files() -> list[str]:
    """Return the paths of ``--py-files``, and of files added since, where the driver runs."""
    place = SparkFiles.getRootDirectory()
    return [one for one in sys.path if one.startswith(place)]


@cache
def _why_not(python: str, *py_files: str) -> str | None:
    """Return why a Python, with these files on its path, cannot run what runs in a worker; None if it can."""
    found = shutil.which(python)
    if found == sys.executable:
        return None
    asked = [found or python, "-c", "import millpond.adapters.spark.operator.operator"]
    path = os.pathsep.join(filter(None, [*py_files, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path} if path else None
    try:
        failed = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if failed.returncode == 0:
        return None
    return (failed.stderr.strip().splitlines() or ["no message"])[-1]
