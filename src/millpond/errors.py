"""Every error that Millpond raises on purpose, in one tree.

An engine's own exception never crosses its adapter: it arrives as one of these, with the original as ``__cause__``.
A message says what went wrong, where, and what to do about it. Late records are not errors: they are counted.

::

    MillpondError
    ├── ConfigurationError (ValueError)   an option, name or argument is wrong; nothing was touched
    │   ├── UnknownBackendError           no supplier is registered under that name
    │   ├── BackendNotInstalledError      the supplier is known, but its package is missing
    │   └── TopologyError                 the topology is not valid
    ├── StoreError
    │   ├── StoreClosedError              the backend or store was used after close
    │   ├── InvalidKeyError (ValueError)  a key that the store cannot hold: None, or of the wrong type
    │   ├── FormatError                   a directory or file in a format version that this release does not know
    │   └── BackendError                  the engine failed
    │       ├── BackendInUseError         another process or handle holds the directory
    │       ├── BackendUnavailableError   the engine cannot be reached now; what it holds is as it was
    │       ├── CorruptStoreError         the engine found damaged data
    │       │   └── UnreadableRowError    a stored row that no serde reads; a SerdeError, too
    │       └── StoreFullError (OSError)  no room left: disk, quota or map
    ├── SerdeError (ValueError)           a value that cannot be serialized, or bytes that cannot be read back
    ├── DurabilityError                   durable state cannot be written or read
    │   ├── MissingFileError              a file that a manifest names is gone
    │   ├── CorruptFileError              a file that a manifest names fails its checksum
    │   └── StateConflictError            the state directory belongs to another topology or application
    └── RecordError (ValueError)          a record that the task cannot process: null key, wrong type, bad timestamp
        └── UserFunctionError             a user's function failed for it; what that raised is the cause

What works, but not well, is a warning: ``PerformanceWarning`` (UserWarning). No message shows a secret in use
(``millpond.masking``).
"""

from millpond.masking import without_known


class MillpondError(Exception):
    """The root of everything that Millpond raises on purpose."""

    def __str__(self) -> str:
        return without_known(super().__str__())


class ConfigurationError(MillpondError, ValueError):
    """An option, a name or an argument is wrong. Nothing was touched."""


class UnknownBackendError(ConfigurationError):
    """No backend supplier is registered under the name given."""


class BackendNotInstalledError(ConfigurationError):
    """A backend supplier is registered, but a package that it needs cannot be imported."""


class TopologyError(ConfigurationError):
    """The topology is not valid."""


class StoreError(MillpondError):
    """A state store could not do what was asked."""


class StoreClosedError(StoreError):
    """A backend, transaction or store was used after it had been closed."""


class InvalidKeyError(StoreError, ValueError):
    """A key that a store cannot hold."""


class FormatError(StoreError):
    """A directory or file is in a format version that this release does not know."""


class BackendError(StoreError):
    """A storage engine failed; its own exception is the cause."""


class BackendInUseError(BackendError):
    """Another process or another handle holds the backend's directory."""


class BackendUnavailableError(BackendError):
    """A storage engine, such as a service, cannot be reached now. What it holds is as it was: try again later."""


class CorruptStoreError(BackendError):
    """A storage engine found its own files damaged."""


class StoreFullError(BackendError, OSError):
    """There is no room left for the data: on the disk, in the quota or in the engine's map."""


class SerdeError(MillpondError, ValueError):
    """A value could not be serialized, or bytes could not be read back."""


class UnreadableRowError(CorruptStoreError, SerdeError):
    """A stored key or value cannot be read: its bytes are damaged, or another serde wrote them."""


class DurabilityError(MillpondError):
    """Durable state (deltas, snapshots, manifests) could not be written or read."""


class MissingFileError(DurabilityError):
    """A file that a committed manifest names does not exist."""


class CorruptFileError(DurabilityError):
    """A file that a committed manifest names is damaged."""


class StateConflictError(DurabilityError):
    """A state directory belongs to another topology or application."""


class RecordError(MillpondError, ValueError):
    """A record that a task cannot process."""


class UserFunctionError(RecordError):
    """A user's function, serde or processor failed for a record; what it raised is the cause.

    The first line of the message names operator, task, topics and record, and what was raised.
    """


class PerformanceWarning(UserWarning):
    """Something works, but takes far longer than it has to; the message says what to set."""
