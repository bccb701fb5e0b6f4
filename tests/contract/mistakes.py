"""The mistakes of the backends in ``broken`` and ``broken_logs``, and the sentence of the contract that each breaks."""

from typing import Final

MISTAKES: Final = {
    "ForgetsEmptyValues": "Values may be empty.",
    "IncludesStop": "Return the entries with ``start <= key < stop``, in key order.",
    "ExcludesStartInReverse": "``reverse`` gives the same entries in the opposite order.",
    "ComparesSignedBytes": "Keys compare as unsigned bytes",
    "ScansTheLiveMap": "The iterator shows the content as it was when ``scan`` was called",
    "HasScansWithoutClose": "It has a ``close`` method",
    "FailsToDeleteWhatIsNotThere": "Deleting a key that does not exist is no error.",
    "WritesLater": "When ``write`` returns, ``get`` and ``scan`` show the changes.",
    "ForgetsItsEnd": "Every method but ``close`` and ``memory_use`` raises ``StoreClosedError``",
    "ClosesOnce": "Closing twice is no error.",
    "DropsRepeatedKeys": "Keys may repeat.",
    "FindsTheLastOfAll": "Return the entry with the greatest key in ``start <= key < stop``",
    **dict.fromkeys(
        (
            "LowersItsKeys",
            "StripsTrailingSpaces",
            "ReplacesNewlines",
            "ReplacesBytesThatAreNoCharacters",
            "CutsLongKeysOff",
        ),
        "A key is any bytes, and keys that differ in a single one are two keys.",
    ),
    "NamedByItsPath": "A new directory is an empty store, whatever was kept under that path before.",
    "LeavesItsRows": "Delete what the store in ``directory`` has outside of it",
    "DestroysAll": "What else the engine holds stays.",
    "DestroysNoDamagedStore": "A directory that is damaged, not there, or of no store is no error.",
    "MisspellsAMethod": "did you mean get_many?",
    "TakesAnyOption": "An option that is unknown, or whose value makes no sense, raises ``ConfigurationError``.",
    "HidesItsMemory": "Return about how many bytes of memory this process has back when the backend is closed.",
    "TakesAnyBudget": "A supplier whose options say another budget, or that cannot do with it, raises",
    "OpensOnce": "Open the backend on ``directory``, which is made if it does not exist.",
    "StaysInItsThread": "That thread need not be the one that opened it, or that made a scan which is still open.",
    "TakesAbsenceForDamage": "An engine that cannot be reached now raises ``BackendUnavailableError``",
    "DeletesTheStopToo": "Delete the entries with ``start <= key < stop``, atomically.",
    **dict.fromkeys(
        (
            "CutsLongValues",
            "KeepsLengthsIn16Bits",
            "KeepsNoValuesOfLongKeys",
            "CountsChangesIn16Bits",
            "BringsDeletedKeysBack",
        ),
        "Values of any length and writes of any number of changes are kept whole.",
    ),
    "CountsFromItsOpening": "Return the number of entries, which may be an estimate.",
    **dict.fromkeys(
        ("LosesWhatIsNotFlushed", "WritesOnBehindATornTail"),
        "What was written is there when the directory is opened again, flushed or not.",
    ),
    "TakesDamageForTheEnd": "With ``checksums``, files of more than 1 MiB in which any byte has changed raise it",
    **dict.fromkeys(
        ("WritesOnBehindHalfARecord", "AppliesBeforeItWrites"),
        "After a write that raises, ``get`` and ``scan`` show whether it was applied",
    ),
    "LocksAgainstOtherProcesses": "Where processes or handles do share it, each sees what the others wrote",
    "LosesItsLockToARefusedHandle": "An engine whose directory cannot be shared raises ``BackendInUseError``",
    "TakesItsPathForAUrl": "Its path may have any characters.",
    "NeedsADirectoryOfItsOwnMaking": "A new directory is an empty store, whatever was kept under that path before.",
    "LetsErrorsOfTheSystemOut": "An engine's own exception never leaves its backend: it becomes a ``StoreError``",
    "LocksBesideItsDirectory": "The directory is the store, also where its rows lie elsewhere.",
    "LeavesItsFileOpen": "Release the engine and its files.",
    **dict.fromkeys(
        ("WritesInPartsOf64KiB", "WritesInPartsOf1000Changes"),
        "Apply all of ``changes`` or none of them, even if the process is killed in the middle.",
    ),
    "DeletesRangesInParts": "Apply all of ``changes`` or none of them, even if the process is killed in the middle.",
    **dict.fromkeys(
        ("FlushesWithoutSync", "SyncsOnlyWhatItWroteItself", "LoadsWithoutSync"),
        "Make everything that was written survive a kill of the process, and a loss of power before the next write.",
    ),
    "OrdersByTheFirst32Bytes": "A key is any bytes, and keys that differ in a single one are two keys.",
    **dict.fromkeys(
        ("CutsKeysAt64KiB", "CutsValuesAt16MiB"),
        "Values of any length and writes of any number of changes are kept whole.",
    ),
    "KeepsACacheAfterLargeWrites": "When ``write`` returns, ``get`` and ``scan`` show the changes.",
    **dict.fromkeys(
        ("LeaksTheLockThatItIsRefused", "LeaksItsFileWhereThatIsDamaged"),
        "An opening that raises leaves no file open.",
    ),
    "LeaksItsFileWhenItTidiesUp": "Release the engine and its files.",
    "RaisesIndexErrorsAtDamage": "An engine's own exception never leaves its backend: it becomes a ``StoreError``",
    "LetsErrorsOfTheSystemOutOfScans": "An engine's own exception never leaves its backend",
    **dict.fromkeys(
        ("TrustsWhatItHasOpen", "HasNoChecksumOfItsRows"),
        "With ``checksums``, files of more than 1 MiB in which any byte has changed raise it",
    ),
    "TakesTheLockOfItsParent": "Where processes or handles do share it, each sees what the others wrote",
    "GetsManyViews": "What is read is ``bytes``.",
    **dict.fromkeys(
        ("EmptiesTheCallersChanges", "ReadsTheCallersChangesLater"),
        "The mapping stays the caller's, who may change it afterwards.",
    ),
}

SAID: Final = {
    **dict.fromkeys(
        ("WritesInPartsOf64KiB", "WritesInPartsOf1000Changes"),
        "a kill in the middle of one write of [^:]*: what is left is the result of no number of whole writes",
    ),
    "DeletesRangesInParts": "a kill in the middle of one deletion of a range",
    "FlushesWithoutSync": "a loss of power after a flush, which leaves .*, and of each file what was synced",
    "SyncsOnlyWhatItWroteItself": "a loss of power after a flush",
    "LoadsWithoutSync": "a loss of power after a flush",
    "CutsKeysAt64KiB": "is .*kkkk.* and should be",
    "LeaksTheLockThatItIsRefused": "while another process has it open",
    "LeaksItsFileWhereThatIsDamaged": "after spoiling of entries.log",
    "RaisesIndexErrorsAtDamage": "raises IndexError",
    "LetsErrorsOfTheSystemOutOfScans": r"scan\w* .*raises OSError|scan that was open raises OSError",
    "TrustsWhatItHasOpen": r"byte \d+ of entries.log has changed while it was open",
    "HasNoChecksumOfItsRows": r"byte \d+ of entries.log has changed",
    "TakesTheLockOfItsParent": "a fork has written b'1', and None is seen",
}
"""What a report says besides, so that an author sees which sort of mistake it is."""
