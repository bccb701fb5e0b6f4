"""The former names of an application that is a clone, under which its manifests may have been written.

Rule of this module: each name is a file without content, in the application's directory, so that several never
conflict::

    <application>/formerly-<application id>
"""

from typing import Final

from millpond.stores.durability.storage.storage import Storage

_PREFIX: Final = "formerly-"


def note_former_name(storage: Storage, application_id: str, former: str) -> None:
    """Note that an application was cloned from another one; doing it again is cheap.

    Raises:
        DurabilityError: the storage failed.
    """
    storage.put_once(f"{application_id}/{_PREFIX}{former}", b"")


def former_names(storage: Storage, application_id: str) -> frozenset[str]:
    """Return the former names under which manifests of an application may have been written; none unless it is a clone.

    Raises:
        DurabilityError: the storage failed.
    """
    names = (file.path.rpartition("/")[2] for file in storage.list(application_id))
    return frozenset(name.removeprefix(_PREFIX) for name in names if is_former_name(name))


def is_former_name(name: str) -> bool:
    """Return whether a file of that name in an application's directory tells a former name."""
    return name.startswith(_PREFIX)


def under(application_id: str, job: str, now: str) -> str | None:
    """Return an application's name once its job has another name; None if it belongs to another job.

    >>> under("flights", "flights", "copy"), under("flights.counts", "flights", "copy"), under("other", "flights", "b")
    ('copy', 'copy.counts', None)
    """
    rest = application_id.removeprefix(job)
    return now + rest if application_id.startswith(job) and rest[:1] in ("", ".") else None
