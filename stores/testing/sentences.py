"""The sentences of the backend contract that the suite proves, as they stand in the docstrings.

Rule of this module: nothing but quotations. Each is used as the decorator of a test or around a part of one.
"""

from millpond.stores.backend.contract import (
    Backend,
    BackendSupplier,
    SupportsMemoryBudget,
)
from millpond.stores.testing.contract import says
from millpond.stores.testing.features import Feature

ANY_KEY = says(Backend, "A key is any bytes, and keys that differ in a single one are two keys.")
KEY_ORDER = says(Backend, "Keys compare as unsigned bytes, shorter first where one is the prefix of the other.")
EMPTY_VALUES = says(Backend, "Values may be empty.")
WHOLE = says(Backend, "Values of any length and writes of any number of changes are kept whole.")
BYTES = says(Backend, "What is read is ``bytes``.")
METHODS = says(Backend, "Its public methods are those of this class.")
HAND_OVER = says(Backend, "That thread need not be the one that opened it, or that made a scan which is still open.")
CLOSED = says(
    Backend, "Every method but ``close`` and ``memory_use`` raises ``StoreClosedError`` once the backend is closed."
)
TRANSLATED = says(
    Backend,
    "An engine's own exception never leaves its backend: it becomes a ``StoreError``, a full disk a "
    "``StoreFullError``.",
)
UNAVAILABLE = says(
    Backend,
    "An engine that cannot be reached now raises ``BackendUnavailableError``, and has lost nothing when it is back.",
)
GET = says(Backend.get, "Return the value of ``key``, or None where there is none.")
RANGE = says(Backend.scan, "Return the entries with ``start <= key < stop``, in key order.")
OPEN_RANGE = says(Backend.scan, "``None`` leaves that side open.")
REVERSE = says(Backend.scan, "``reverse`` gives the same entries in the opposite order.")
EMPTY_RANGE = says(Backend.scan, "A range whose start is not below its stop is empty.")
SNAPSHOT = says(
    Backend.scan,
    "The iterator shows the content as it was when ``scan`` was called, whatever is written while it is open.",
)
SEVERAL_SCANS = says(Backend.scan, "Several may be open at once.")
CLOSE_SCAN = says(
    Backend.scan,
    "It has a ``close`` method, which frees what it holds; exhausting or dropping it does the same.",
)
ATOMIC = says(Backend.write, "Apply all of ``changes`` or none of them, even if the process is killed in the middle.")
DELETE_NOTHING = says(Backend.write, "Deleting a key that does not exist is no error.")
SEEN = says(Backend.write, "When ``write`` returns, ``get`` and ``scan`` show the changes.")
CALLERS = says(Backend.write, "The mapping stays the caller's, who may change it afterwards.")
FAILED = says(
    Backend.write,
    "After a write that raises, ``get`` and ``scan`` show whether it was applied, and what they show is kept as if it "
    "had not raised.",
)
PREFIX = says(
    Backend.write, "If the process was killed, a reopened backend shows the result of a prefix of the writes."
)
FLUSHED = says(
    Backend.flush,
    "Make everything that was written survive a kill of the process, and a loss of power before the next write.",
)
FLUSH_IN_MEMORY = says(Backend.flush, "A backend in memory does nothing here.")
RELEASE = says(Backend.close, "Release the engine and its files.")
KEPT = says(Backend.close, "What was written is there when the directory is opened again, flushed or not.")
CLOSE_TWICE = says(Backend.close, "Closing twice is no error.")
CLOSE_ENDS_SCANS = says(Backend.close, "Open scans end with ``StoreClosedError``.")
GET_MANY = says(Backend.get_many, "Return the value of each key, in the order of ``keys``; None where there is none.")
REPEATED_KEYS = says(Backend.get_many, "Keys may repeat.")
LAST = says(
    Backend.last,
    "Return the entry with the greatest key in ``start <= key < stop``, or None where the range has none.",
)
DELETE_RANGE = says(Backend.delete_range, "Delete the entries with ``start <= key < stop``, atomically.")
LOAD = says(Backend.load, "Load entries that come in strictly ascending key order into a backend that is empty.")
ENTRY_COUNT = says(Backend.entry_count, "Return the number of entries, which may be an estimate.")
MEMORY_USE = says(
    Backend.memory_use, "Return about how many bytes of memory this process has back when the backend is closed."
)
WITH_BUDGET = says(
    SupportsMemoryBudget.with_memory_budget,
    "Return this supplier with a budget of so many bytes, which opens what this one has written.",
)
OTHER_BUDGET = says(
    SupportsMemoryBudget.with_memory_budget,
    "A supplier whose options say another budget, or that cannot do with it, raises ``ConfigurationError``.",
)
GOES_ON = says(SupportsMemoryBudget.limit_memory, "What is open goes on.")
PICKLABLE = says(BackendSupplier, "A picklable description of a backend: which engine, with which options.")
FROM_OPTIONS = says(BackendSupplier.from_options, "Return the supplier for options as they stand in a URL.")
BAD_OPTION = says(
    BackendSupplier.from_options,
    "An option that is unknown, or whose value makes no sense, raises ``ConfigurationError``.",
)
BAD_OPTION_NAMED = says(BackendSupplier.from_options, "The message names it.")
OPEN = says(BackendSupplier.open, "Open the backend on ``directory``, which is made if it does not exist.")
ANY_PATH = says(BackendSupplier.open, "Its path may have any characters.")
THE_STORE = says(BackendSupplier.open, "The directory is the store, also where its rows lie elsewhere.")
NEW_IS_EMPTY = says(
    BackendSupplier.open, "A new directory is an empty store, whatever was kept under that path before."
)
RENAMED = says(BackendSupplier.open, "A directory that was renamed is the store that it was under its old name.")
DESTROY = says(
    BackendSupplier.destroy,
    "Delete what the store in ``directory`` has outside of it, before the caller deletes the directory.",
)
DESTROY_ALONE = says(BackendSupplier.destroy, "What else the engine holds stays.")
DESTROY_NOTHING = says(BackendSupplier.destroy, "A directory that is damaged, not there, or of no store is no error.")
IN_USE = says(
    BackendSupplier.open,
    "An engine whose directory cannot be shared raises ``BackendInUseError`` while another process or handle has it "
    "open; the message names the directory.",
)
SHARED = says(
    BackendSupplier.open,
    "Where processes or handles do share it, each sees what the others wrote after its own next write or flush.",
)
NOTHING_OPEN = says(BackendSupplier.open, "An opening that raises leaves no file open.")
DAMAGED = says(
    BackendSupplier.open, "Damaged files raise ``CorruptStoreError``, here or at the read that finds the damage."
)
CHANGED_ANYWHERE = says(
    BackendSupplier.open,
    "With ``checksums``, files of more than 1 MiB in which any byte has changed raise it, or show what was written.",
)
OPT_OUT = says(Feature, "A suite opts out of it in ``opt_outs``, and tests that need it are skipped.")
