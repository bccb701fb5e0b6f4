"""The settings with which all jobs of Flink run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

CHECKPOINT_SECONDS: Final = 2
"""The seconds between checkpoints: about as often as Millpond commits micro-batches of a million rows."""

STATE_BACKENDS: Final[Mapping[str, str]] = {"flink_heap": "hashmap", "flink_rocksdb": "rocksdb"}
"""Flink's names of state backends, by the names of the contenders."""

_BOUND_TO: Final = ("jobmanager.bind-host", "taskmanager.bind-host", "rest.bind-address", "rest.address")
"""The settings by which Flink would let others in."""


def settings_of(state_backend: str, cores: int, directory: Path) -> dict[str, str]:
    """Return the settings of a job: exactly once, with all cores, and with what makes Flink quick at any such work.

    Args:
        state_backend: Flink's name of it.
        cores: parallel tasks of each operator.
        directory: gets checkpoints and local state.
    """
    return {
        "execution.runtime-mode": "streaming",
        "parallelism.default": str(cores),
        "taskmanager.numberOfTaskSlots": str(cores),
        "taskmanager.memory.managed.size": "1g",
        **dict.fromkeys(_BOUND_TO, "localhost"),
        "io.tmp.dirs": str(directory),
        "state.backend.type": state_backend,
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.interval": f"{CHECKPOINT_SECONDS} s",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": (directory / "checkpoints").as_uri(),
        "restart-strategy.type": "none",
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "1 s",
        "table.exec.mini-batch.size": "50000",
    }
