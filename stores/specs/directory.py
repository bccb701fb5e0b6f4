"""The place of a store's files on the local disk (KIP-258).

::

    <local_dir>/<application_id>/<task_id>/<backend>/<store>         format version 1
    <local_dir>/<application_id>/<task_id>/<backend>/<store>-v<n>    any other
"""

import os
import re
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Final
from urllib.parse import quote

from millpond.errors import InvalidNameError, LocalDirectoryError
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.own_files import NOT_OURS, is_link, links_below
from millpond.stores.specs.formats import plain_part
from millpond.stores.specs.store_spec import StoreSpec

LONGEST_NAME: Final = 200
"""The most bytes of a name in UTF-8: file systems take 255, and some files have more in their names."""


QUERY_MARK: Final = "@"
"""The mark between the plain name of a sink, which has none, and the place of the state in the name of a query's
directory."""

_PLACE: Final = re.compile(r"[0-9a-f]{16}")


def check_plain_name(what: str, name: object) -> None:
    """Refuse a name that no directory can have; ``what`` tells what it names in the message.

    Raises:
        ConfigurationError: it is not a plain file name, or too long for one.
    """
    if not isinstance(name, str) or name in {"", ".", ".."} or any(part in name for part in "/\\"):
        raise InvalidNameError(
            f"{what} {name!r} must be a plain file name, because a directory gets it; choose one such as "
            f"{plain_part(name, 'orders')!r}"
        )
    if not name.isprintable() or name != name.strip():
        raise InvalidNameError(
            f"{what} {name!r} has control characters, or begins or ends with a space; choose a name without, because a "
            "directory gets it"
        )
    size = len(name.encode())
    if size > LONGEST_NAME:
        raise InvalidNameError(
            f"{what} {name[:40] + '…'!r} has {size} bytes; choose one of {LONGEST_NAME} or less, because a directory "
            "gets it"
        )


def plain_name(text: str) -> str:
    """Return a name that a directory can have, made of any text, a different one for each."""
    name = quote(text, safe="", errors="surrogatepass")
    if name.strip(".") and len(name) <= LONGEST_NAME:
        return name
    return f"{name[:40].strip('.')}%{sha256(text.encode(errors='surrogatepass')).hexdigest()[:32]}"


def state_of_query(name: str) -> str | None:
    """Return the state directory that a query's directory of local copies belongs to, by its name.

    Returns:
        ``Storage.place`` of the state directory; None for any other name, or a directory of a release before 0.2.
    """
    place = name.rpartition(QUERY_MARK)[2]
    return place if QUERY_MARK in name and _PLACE.fullmatch(place) else None


def store_directory(local_dir: Path, application_id: str, task_id: str, backend_name: str, spec: StoreSpec) -> Path:
    """Return the directory of one store of one task on one backend. Nothing is created or read.

    Raises:
        ConfigurationError: one of the parts is not a plain file name.
    """
    for what, part in (("application id", application_id), ("task id", task_id), ("backend name", backend_name)):
        check_plain_name(what, part)
    return local_dir / application_id / task_id / backend_name / spec.directory_name


def refuse_linked_store(directory: Path) -> None:
    """Refuse a directory that is a link: it is none of a store's.

    Raises:
        StoreError: it is a link.
    """
    if is_link(directory):
        raise LocalDirectoryError(f"{directory} {NOT_OURS}")


def delete_local_copy(supplier: BackendSupplier, directory: Path) -> None:
    """Delete a store that nobody has open, with what its engine has outside of its directory. There may be none.

    Raises:
        StoreError: it cannot be deleted, or is a link.
    """
    refuse_linked_store(directory)
    if not directory.is_dir():
        return
    try:
        for link in links_below(directory):
            os.unlink(link)  # before an engine looks for its files there
    except OSError as error:
        raise LocalDirectoryError(
            f"the local copy in {directory} cannot be deleted: {error}; delete it by hand"
        ) from error
    supplier.destroy(directory)
    while directory.is_dir():
        try:
            rmtree(directory)
        except FileNotFoundError:
            continue  # somebody else deletes it, too
        except OSError as error:
            raise LocalDirectoryError(
                f"the local copy in {directory} cannot be deleted: {error}; delete it by hand"
            ) from error
