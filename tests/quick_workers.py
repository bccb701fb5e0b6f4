"""The process that forks Spark's Python workers, with what each of them imports imported once: see ``quick_spark.py``.

Where Spark calls for ``pyspark.daemon``, this stands in for it. For each operator of a query that starts, Spark also
starts a Python beside its driver, only to hear which state the operator has. ``hand_over`` leaves that to a fork of a
process that this one has left behind, and so to one that has imported what it takes.
"""

import gc
import os
import runpy
import select
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Final, NoReturn

DRIVER: Final = "pyspark.sql.streaming.transform_with_state_driver_worker"
"""The module that Spark starts beside its driver."""
_PIPE: Final = os.path.join(os.environ.get("SPARK_LOCAL_DIRS", os.devnull), "beside-the-driver")
"""Takes a line for each fork: the port where Spark waits for it, and the secret that it has to tell."""
_ADDRESS: Final = ("PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SECRET")
_CAPACITY: Final = 1 << 16


def hand_over() -> None:
    """End this process, which Spark has started for ``DRIVER``, and leave that to a fork, unless nobody makes any."""
    try:
        address = " ".join(os.environ[name] for name in _ADDRESS)
        pipe = os.open(_PIPE, os.O_WRONLY | os.O_NONBLOCK)
    except (KeyError, OSError):
        return
    os.write(pipe, f"{address}\n".encode())
    os._exit(0)


def _fork_beside_driver() -> NoReturn:
    """Fork for each line of the pipe until the JVM is gone, which holds the other end of the standard input."""
    os.dup2(2, 1)  # from the standard output Spark still reads the daemon's port
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    pipe = os.open(_PIPE, os.O_RDWR)
    events = select.poll()
    events.register(pipe, select.POLLIN)
    events.register(0, 0)
    while (0, select.POLLHUP) not in events.poll():
        for line in os.read(pipe, _CAPACITY).decode().splitlines():
            if os.fork() == 0:
                _work(line)
    os._exit(0)


def _work(address: str) -> NoReturn:
    """Do what Spark has started the process for that has left it to this one."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.update(zip(_ADDRESS, address.split(), strict=True))
    try:
        runpy.run_module(DRIVER, run_name="__main__", alter_sys=True)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def _pipe_is_made() -> bool:
    """Make the pipe, unless another daemon of this JVM has."""
    try:
        os.mkfifo(_PIPE, 0o600)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    for name in (
        "pyspark.worker",
        "pyspark.sql.streaming.proto.StateMessage_pb2",
        "pyspark.sql.streaming.stateful_processor_api_client",
        "millpond.adapters.spark.operator.task_operator",
        "millpond.adapters.spark.verbs.frames.sink",
        "millpond.adapters.lmdb",
        "millpond.adapters.rocksdb",
    ):
        # Releases of Spark have other modules, and so has a branch on which a module has moved.
        with suppress(ImportError):
            import_module(name)
    gc.freeze()
    if _pipe_is_made() and os.fork() == 0:
        _fork_beside_driver()
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
