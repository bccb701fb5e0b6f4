"""Every error that Millpond raises on purpose, in one tree; each class is one condition, and has a code.

An engine's own exception never crosses its adapter: it arrives as one of these, with the original as ``__cause__``. A
message says what went wrong, where, and what to do about it, and ends with the code, which is the name of the class in
capitals: ``[MILLPOND-UNKNOWN-COLUMN]`` of ``UnknownColumnError``. So the message, in a log or wrapped by another
exception, leads to the page of the condition: ``docs/errors/MILLPOND-UNKNOWN-COLUMN.md``, which ``millpond explain``
shows, too. Late records are not errors: they are counted.

A class with others below it is raised for conditions that none of these covers.

::

    MillpondError
    ├── ConfigurationError (ValueError)
    │   ├── InvalidCallError
    │   ├── InvalidArgumentError
    │   ├── MissingArgumentError
    │   ├── ArgumentConflictError
    │   ├── UnknownColumnError
    │   ├── DuplicateColumnError
    │   ├── ColumnTypeError
    │   ├── InvalidExpressionError
    │   ├── ChangeFeedError
    │   ├── InvalidTimeError
    │   ├── TimeZoneError
    │   ├── InvalidNameError
    │   ├── InvalidOptionError
    │   ├── StateDirectoryError
    │   ├── PlaceTakenError
    │   ├── UnknownBackendError
    │   ├── BackendNotInstalledError
    │   ├── MissingPackageError
    │   ├── SparkSessionError
    │   ├── WorkerPythonError
    │   ├── StreamingOrStaticError
    │   ├── DeltaLakeError
    │   ├── NoCheckpointError
    │   ├── MicroBatchNotKeptError
    │   ├── EditRefusedError
    │   ├── InvalidRowError
    │   ├── InvalidEvolutionError
    │   ├── LookupTableError
    │   ├── StoreKindError
    │   ├── UpgradeFromError
    │   ├── TopologyError
    │   │   ├── DuplicateNameError
    │   │   ├── UnknownNameError
    │   │   ├── AmbiguousError
    │   │   ├── InvalidWindowError
    │   │   ├── NoHistoryError
    │   │   ├── MissingSerdeError
    │   │   ├── NotCopartitionedError
    │   │   ├── ProcessorUseError
    │   │   └── InvalidOutputError
    │   └── BrokenBackendError (StoreError)
    ├── StoreError
    │   ├── LocalDirectoryError
    │   ├── StoreClosedError
    │   ├── InvalidKeyError (ValueError)
    │   ├── FormatError
    │   │   ├── DamagedRecordError
    │   │   ├── SparkStateError
    │   │   └── TableFormatError
    │   └── BackendError
    │       ├── BackendInUseError
    │       ├── BackendUnavailableError
    │       ├── CorruptStoreError
    │       │   ├── KafkaStreamsStateError (FormatError)
    │       │   └── UnreadableRowError (SerdeError)
    │       └── StoreFullError (OSError)
    │           └── BufferFullError
    ├── SerdeError (ValueError)
    ├── DurabilityError
    │   ├── StorageError
    │   ├── MissingFileError
    │   │   └── MissingTableFileError
    │   ├── CorruptFileError
    │   └── StateConflictError
    │       ├── StoresChangedError
    │       ├── ColumnsChangedError
    │       ├── VerbChangedError
    │       ├── CallChangedError
    │       ├── RekeyedRowsError
    │       ├── BegunAlreadyError
    │       ├── CheckpointRewoundError
    │       ├── ConcurrentJobError
    │       ├── NothingToUndoError
    │       ├── NotCleanedError
    │       ├── WrongCheckpointError (ConfigurationError)
    │       ├── CannotContinueError (ConfigurationError)
    │       └── UnrecordedStateError (ConfigurationError)
    └── RecordError (ValueError)
        ├── InvalidValueError
        └── UserFunctionError

A call that works, but not well, is a warning: ``PerformanceWarning`` (UserWarning). No message shows a secret in use
(``millpond.masking``).
"""

import re
from typing import ClassVar, Final

from millpond.masking import without_known

CODE: Final = re.compile(r"MILLPOND(?:-[A-Z]+)+")
"""The pattern of a code in a text."""
_ENDING: Final = re.compile(rf" \[{CODE.pattern}\]")


def code_of(name: str) -> str:
    """Return the code of an error, by the name of its class.

    >>> code_of("UnknownColumnError")
    'MILLPOND-UNKNOWN-COLUMN'
    """
    words = re.findall("[A-Z][a-z]+", name.removeprefix("Millpond"))
    return "-".join(["MILLPOND", *(word.upper() for word in words[:-1] or words)])


class Coded(Exception):
    """An error that has a code, and shows it.

    Attributes:
        code: the name of the condition, in messages and in the documentation; it never changes its meaning. A subclass
            that is defined elsewhere has the code of its base.
    """

    code: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__ == __name__:
            cls.code = code_of(cls.__name__)

    @property
    def sentence(self) -> str:
        """The message without codes: neither its own nor the codes of errors that it quotes."""
        return without_known(_ENDING.sub("", super().__str__()))

    def __str__(self) -> str:
        return f"{self.sentence} [{self.code}]".lstrip()


class MillpondError(Coded):
    """The root of all errors that Millpond raises on purpose."""


class ConfigurationError(MillpondError, ValueError):
    """An option, a name or an argument is wrong. Nothing was touched."""


class InvalidCallError(ConfigurationError):
    """A call has an argument that it does not know, lacks one that it must have, or comes too late."""


class InvalidArgumentError(ConfigurationError):
    """An argument has a value or a type that it cannot have."""


class MissingArgumentError(ConfigurationError):
    """An argument without a default is missing."""


class ArgumentConflictError(ConfigurationError):
    """Two arguments do not go together."""


class UnknownColumnError(ConfigurationError):
    """There is no column of that name."""


class DuplicateColumnError(ConfigurationError):
    """Two columns would have the same name."""


class ColumnTypeError(ConfigurationError):
    """A column has a type that it cannot have where it is used."""


class InvalidExpressionError(ConfigurationError):
    """An expression or a condition cannot be evaluated for each row."""


class ChangeFeedError(ConfigurationError):
    """The rows are a change feed, and the call is for rows that stay."""


class InvalidTimeError(ConfigurationError):
    """A time or a length of time cannot be understood."""


class TimeZoneError(ConfigurationError):
    """A time has no time zone, or times with a zone meet times without one."""


class InvalidNameError(ConfigurationError):
    """A name cannot be that of a store, a verb, an application or a file."""


class InvalidOptionError(ConfigurationError):
    """An option of a backend, a URI or a reader is unknown, or has a value that it cannot have."""


class StateDirectoryError(ConfigurationError):
    """The state directory cannot be reached."""


class PlaceTakenError(ConfigurationError):
    """Something already exists where new files are to go."""


class UnknownBackendError(ConfigurationError):
    """No backend supplier is registered under the name given."""


class BackendNotInstalledError(ConfigurationError):
    """A backend supplier is registered, but a package that it needs cannot be imported."""


class MissingPackageError(ConfigurationError):
    """A package, or Java, is missing, which only this feature needs."""


class SparkSessionError(ConfigurationError):
    """The Spark session is missing, not set up for this, or of a kind that cannot do it."""


class WorkerPythonError(ConfigurationError):
    """The Python that Spark's workers run cannot import Millpond."""


class StreamingOrStaticError(ConfigurationError):
    """A DataFrame is streaming where a static one is needed, or the other way round."""


class DeltaLakeError(ConfigurationError):
    """The session cannot write tables of Delta Lake."""


class NoCheckpointError(ConfigurationError):
    """There is no checkpoint there, or nothing in it that could be read."""


class MicroBatchNotKeptError(ConfigurationError):
    """A checkpoint no longer keeps the micro-batch that was asked for, or has not come to it."""


class EditRefusedError(ConfigurationError):
    """The state cannot be edited in this way."""


class InvalidRowError(ConfigurationError):
    """A key, value or row that was given does not fit the columns."""


class InvalidEvolutionError(ConfigurationError):
    """A declaration of renamed, dropped or added things contradicts itself or the job."""


class LookupTableError(ConfigurationError):
    """The table of a lookup join cannot be used."""


class StoreKindError(ConfigurationError):
    """A store of this kind cannot do what it is asked for."""


class UpgradeFromError(ConfigurationError):
    """``upgrade_from`` names a release that this one cannot be upgraded from."""


class TopologyError(ConfigurationError):
    """The topology is not valid."""


class DuplicateNameError(TopologyError):
    """Two things of one job have the same name."""


class UnknownNameError(TopologyError):
    """There is no store, topic, sink, table or verb of that name."""


class AmbiguousError(TopologyError):
    """Several things match, and nothing says which one is meant."""


class InvalidWindowError(TopologyError):
    """The windows as described are impossible."""


class NoHistoryError(TopologyError):
    """A table keeps no history, or too little of it, for the look-ups into it."""


class MissingSerdeError(TopologyError):
    """No serde is given for keys or values."""


class NotCopartitionedError(TopologyError):
    """The two sides of a join have keys of different types."""


class ProcessorUseError(TopologyError):
    """A processor asked its context for something that it cannot have."""


class InvalidOutputError(TopologyError):
    """The rows of a sink cannot be written to the output that was given."""


class StoreError(MillpondError):
    """A state store could not do what was asked."""


class BrokenBackendError(ConfigurationError, StoreError):
    """A backend of another distribution breaks the contract of backends."""


class LocalDirectoryError(StoreError):
    """A worker cannot use its directory of local copies."""


class StoreClosedError(StoreError):
    """A backend, transaction or store was used after it had been closed."""


class InvalidKeyError(StoreError, ValueError):
    """A key that a store cannot hold."""


class FormatError(StoreError):
    """A directory or file is in a format version that this release does not know."""


class DamagedRecordError(FormatError):
    """A small file of a job, such as a manifest, is damaged."""


class SparkStateError(FormatError):
    """The state that Spark keeps cannot be read without Spark."""


class TableFormatError(FormatError):
    """A table has a feature that a lookup join does not read."""


class BackendError(StoreError):
    """A storage engine failed; its own exception is the cause."""


class BackendInUseError(BackendError):
    """Another process or another handle holds the backend's directory."""


class BackendUnavailableError(BackendError):
    """A storage engine, such as a service, cannot be reached now. What it holds is as it was: try again later."""


class CorruptStoreError(BackendError):
    """A storage engine found its own files damaged."""


class KafkaStreamsStateError(CorruptStoreError, FormatError):
    """State of Kafka Streams was not closed cleanly, is damaged, or has another format."""


class StoreFullError(BackendError, OSError):
    """There is no room left for the data: on the disk, in the quota or in the engine."""


class BufferFullError(StoreFullError):
    """A buffer that holds results back has reached its limit."""


class SerdeError(MillpondError, ValueError):
    """A value could not be serialized, or bytes could not be read back."""


class UnreadableRowError(CorruptStoreError, SerdeError):
    """A stored key or value cannot be read: its bytes are damaged, or another serde wrote them."""


class DurabilityError(MillpondError):
    """Durable state (deltas, snapshots, manifests) could not be written or read."""


class StorageError(DurabilityError):
    """The storage of durable state refused to read, write, list or delete a file."""


class MissingFileError(DurabilityError):
    """A file that a committed manifest names does not exist."""


class MissingTableFileError(MissingFileError):
    """A file of a table that a lookup join reads was deleted."""


class CorruptFileError(DurabilityError):
    """A file that a committed manifest names is damaged."""


class StateConflictError(DurabilityError):
    """A state directory belongs to another topology or application."""


class StoresChangedError(StateConflictError):
    """The job has other stores than its state, and no declaration connects them."""


class ColumnsChangedError(StateConflictError):
    """The rows in the state have other columns than the rows that come now."""


class VerbChangedError(StateConflictError):
    """The state belongs to another verb than the one that is to go on with it."""


class CallChangedError(StateConflictError):
    """A verb is called with other arguments than when its state was written."""


class RekeyedRowsError(StateConflictError):
    """A verb cannot begin with the rows that another one keeps."""


class BegunAlreadyError(StateConflictError):
    """The job has begun without something that was to be there from the beginning."""


class CheckpointRewoundError(StateConflictError):
    """The checkpoint stands before something that cannot be done again."""


class ConcurrentJobError(StateConflictError):
    """Another job has changed the same state at the same time."""


class NothingToUndoError(StateConflictError):
    """There is no edit of the state that could be undone."""


class NotCleanedError(StateConflictError):
    """Files stay, because nothing proves that they may go."""


class WrongCheckpointError(StateConflictError, ConfigurationError):
    """The checkpoint belongs to another query."""


class CannotContinueError(StateConflictError, ConfigurationError):
    """A query cannot go on at another checkpoint."""


class UnrecordedStateError(StateConflictError, ConfigurationError):
    """No record describes the state."""


class RecordError(MillpondError, ValueError):
    """A record that a task cannot process."""


class InvalidValueError(RecordError):
    """A value does not fit the type of its column."""


class UserFunctionError(RecordError):
    """A user's function, serde or processor failed for a record; its exception is the cause.

    The first line of the message names operator, task, topics and record, and the exception.
    """


class PerformanceWarning(Coded, UserWarning):
    """Something works, but takes far longer than it has to."""
