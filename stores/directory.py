"""Where a store's files live on the local disk (KIP-258).

::

    <local_dir>/<application_id>/<task_id>/<backend>/<store>        format version 1
    <local_dir>/<application_id>/<task_id>/<backend>/<store>-v2     format version 2
"""

from pathlib import Path

from millpond.errors import ConfigurationError
from millpond.stores.specs import StoreSpec


def check_plain_name(what: str, name: str) -> None:
    """Refuse a name that no directory can have; ``what`` says in the message what it is the name of.

    Raises:
        ConfigurationError: it is not a plain file name.
    """
    if not name or name in {".", ".."} or any(character in name for character in "/\\\0"):
        raise ConfigurationError(f"{what} {name!r} must be a plain file name, because a directory gets it")


def store_directory(local_dir: Path, application_id: str, task_id: str, backend_name: str, spec: StoreSpec) -> Path:
    """The directory of one store of one task on one backend. Nothing is created or read.

    Raises:
        ConfigurationError: one of the parts is not a plain file name.
    """
    for what, part in (("application id", application_id), ("task id", task_id), ("backend name", backend_name)):
        check_plain_name(what, part)
    return local_dir / application_id / task_id / backend_name / spec.directory_name
