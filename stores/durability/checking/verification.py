"""Verification that all files of manifests are there, whole and readable, and that local copies hold the same rows.

Rule of this module: it changes nothing, and may run beside a job. A file that a running job's garbage collection
deletes meanwhile is no finding: a file that has gone counts only if the manifests, read again, still name it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from millpond.errors import CorruptStoreError, DurabilityError, FormatError, MissingFileError
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability.checking.copy_verification import copies_of, verify_copies
from millpond.stores.durability.checking.findings import Finding, Report, Severity, Subject, Tally
from millpond.stores.durability.checking.inspection import DurableRows
from millpond.stores.durability.copies.restore import entries
from millpond.stores.durability.manifests.garbage import garbage
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.durability.manifests.schema_log import schema_faults
from millpond.stores.durability.parquet.reading import read_all_tables, read_tables
from millpond.stores.durability.parquet.rows import fault_in
from millpond.stores.durability.storage.clock import host_ms
from millpond.stores.durability.storage.durable_file import DurableFile, sequence_of
from millpond.stores.durability.storage.storage import Storage, StoredFile
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.store_spec import StoreSpec
from millpond.stores.typed.versions.version_rows import history_prefix, is_latest_row

DEFAULT_WORKERS: Final = 4

Specs: TypeAlias = Mapping[str, Mapping[str, StoreSpec]]
"""The stores of applications: by application id, then by name."""

_SEVERITIES: Final = (Severity.BROKEN, Severity.HEALABLE, Severity.HARMLESS)


def verify(
    storage: Storage,
    manifests: Callable[[], Collection[Manifest]],
    *,
    specs: Specs | None = None,
    local_dirs: Iterable[Path] = (),
    policy: DurabilityPolicy | None = None,
    workers: int = DEFAULT_WORKERS,
) -> Report:
    """Verify all that some manifests name, and the local copies of their tasks. Nothing is changed.

    Every file must be there, be what was written, to the last byte, and have rows of stores, in the order of their
    keys. For the stores in ``specs``, all keys and values of the version must be readable, too.

    Args:
        storage: the place of the durable files.
        manifests: returns the manifests to verify, of one version of each task or of several. It is called again if
            files have gone or local copies have moved on meanwhile, and then returns those that may be opened by now.
        specs: the stores whose rows are to be read: ``{application_id: topology.stores}``.
        local_dirs: the directories of local copies, which are compared with the newest manifest of their task.
        policy: the job's policy; garbage depends on it.
        workers: the number of files and stores to read at the same time; 1 is the least burden.

    Raises:
        DurabilityError: the storage failed to list files.
        StoreError: a local directory cannot be used, or has no room for a duplicate of a copy.
    """
    given, chosen = manifests(), policy or DurabilityPolicy()
    tasks, lineages = _newest(given, _task), _newest(given, _lineage)
    copies = {(local, task): copies_of(local, manifest) for local in local_dirs for task, manifest in tasks.items()}

    def newest(task: str) -> Manifest | None:
        return _newest(manifests(), _task).get(task)

    with ThreadPoolExecutor(workers, "millpond-verify") as pool:
        files = _verified(pool, storage, given)
        found = [
            [finding for file in files.values() for finding in file.findings],
            [finding for manifest in given for finding in _chain_findings(storage, manifest)],
            *pool.map(lambda rows: _row_findings(storage, *rows), _readable(given, files, specs or {})),
            *pool.map(lambda at: verify_copies(storage, tasks[at[1]], copies[at], partial(newest, at[1])), copies),
            *pool.map(partial(_schema_findings, storage), sorted({manifest.application_id for manifest in given})),
        ]
        strays = list(pool.map(partial(_strays, storage, chosen, given), lineages.values()))
        others = pool.map(partial(_other_lineages, storage, lineages), tasks)
    findings = set(chain.from_iterable(found))
    if any(file.missing for file in files.values()):
        findings -= _collected(files, manifests())
    return Report(
        findings=tuple(sorted(findings, key=_rank)),
        tasks=len(tasks),
        read=_sum(Tally(1, file.size) for file in files.values() if file.whole),
        copies=sum(map(len, copies.values())),
        unnamed=_sum(unnamed for unnamed, _ in strays),
        garbage=_sum(expendable for _, expendable in strays),
        other_lineages=_sum(others),
    )


def newest_sound(
    storage: Storage, versions: Iterable[tuple[int, Collection[Manifest]]], *, workers: int = DEFAULT_WORKERS
) -> int | None:
    """Return the number of the first version whose files are all there and whole; None if there is none.

    Args:
        storage: the place of the durable files.
        versions: the number and manifests of each version, the newest first; taken one by one, and each file is read
            once.
        workers: the number of files to read at the same time.
    """
    known: dict[str, _Verified] = {}
    with ThreadPoolExecutor(workers, "millpond-verify") as pool:
        for number, manifests in versions:
            known |= _verified(pool, storage, manifests, known)
            if not any(_chain_findings(storage, manifest) for manifest in manifests) and not any(
                known[manifest.path(file)].findings for manifest in manifests for file in manifest.files
            ):
                return number
    return None


class _Verified(NamedTuple):
    """A durable file that was looked at."""

    size: int
    findings: list[Finding]
    missing: bool = False

    @property
    def whole(self) -> bool:
        """True if the file is what was written."""
        return all(finding.subject is not Subject.FILE for finding in self.findings)


def _verified(
    pool: Executor, storage: Storage, manifests: Iterable[Manifest], known: Collection[str] = ()
) -> dict[str, _Verified]:
    """Return the files that the manifests name, by path, without those that are known."""
    named = {manifest.path(file): (manifest, file) for manifest in manifests for file in manifest.stored}
    new = {path: owned for path, owned in named.items() if path not in known}
    return dict(zip(new, pool.map(lambda owned: _verify_file(storage, *owned), new.values()), strict=True))


def _verify_file(storage: Storage, manifest: Manifest, file: DurableFile) -> _Verified:
    where = storage.describe(manifest.path(file))
    findings = []
    try:
        for view in (file, file.part) if file.part_rows else (file,):
            for store, table in read_all_tables(storage, manifest, view):
                fault = fault_in(table, deletions=view not in manifest.base)
                if fault is not None:
                    findings.append(_broken(manifest, Subject.ROWS, where, f"store {store!r}: {fault}"))
    except (DurabilityError, FormatError) as error:
        missing = isinstance(error, MissingFileError)
        return _Verified(file.size, [_broken(manifest, Subject.FILE, where, str(error))], missing)
    return _Verified(file.size, findings)


def _collected(files: Mapping[str, _Verified], again: Collection[Manifest]) -> set[Finding]:
    """Return the findings about files that have gone and that no manifest names any more."""
    named = {manifest.path(file) for manifest in again for file in manifest.files}
    gone = (file.findings for path, file in files.items() if file.missing and path not in named)
    return set(chain.from_iterable(gone))


def _chain_findings(storage: Storage, manifest: Manifest) -> list[Finding]:
    first = 1 if manifest.snapshot is None else manifest.snapshot.sequence
    sequences = [first] * (manifest.snapshot is not None) + [delta.sequence for delta in manifest.deltas]
    if sequences == list(range(first, first + len(sequences))):
        return []
    what = f"it names the files of the commits {sequences}, which do not follow each other from {first} on"
    return [_broken(manifest, Subject.CHAIN, storage.describe(manifest.directory), what)]


def _readable(
    manifests: Iterable[Manifest], files: Mapping[str, _Verified], specs: Specs
) -> list[tuple[Manifest, StoreSpec]]:
    """Return the stores whose rows can be read, because nothing is wrong with their files."""
    return [
        (manifest, spec)
        for manifest in manifests
        for spec in specs.get(manifest.application_id, {}).values()
        if not any(files[manifest.path(file)].findings for file in manifest.files)
    ]


def _row_findings(storage: Storage, manifest: Manifest, spec: StoreSpec) -> list[Finding]:
    where = storage.describe(manifest.directory)
    try:
        rows = DurableRows(storage, manifest, spec.name, spec.kind.format_version)
        with spec.open_read_only(Transaction(rows)) as store:
            damaged = store.damaged_rows()
            first = next(damaged, None)
            count = 1 + sum(1 for _ in damaged)
        if first is None:
            return []
        row, reason = first
        file = _file_of(storage, manifest, spec, row)
    except MissingFileError:
        return []  # all files were whole a moment ago, so this one has been collected
    except (DurabilityError, FormatError, CorruptStoreError) as error:
        return [_broken(manifest, Subject.ROWS, where, f"store {spec.name!r} cannot be read: {error}")]
    why = f"{type(reason).__name__}: {reason}"
    what = f"{count} rows of store {spec.name!r} cannot be read; the first is {row.hex()}: {why}"
    return [_broken(manifest, Subject.ROWS, storage.describe(manifest.path(file)), what)]


def _file_of(storage: Storage, manifest: Manifest, spec: StoreSpec, row: bytes) -> DurableFile:
    """Return the file that has the row as it is at ``manifest``: the last one that has it at all."""
    if spec.kind.format_version is FormatVersion.LATEST_APART and is_latest_row(row):
        plain = entries(storage, manifest, spec.name, FormatVersion.PLAIN)
        row = max(key for key, _ in plain if history_prefix(row) <= key < row)
    for file in reversed(manifest.files[1:]):
        if any(row in table["key"].to_pylist() for table in read_tables(storage, manifest, file, spec.name)):
            return file
    return manifest.files[0]


def _schema_findings(storage: Storage, application_id: str) -> list[Finding]:
    return [
        Finding(
            Severity.BROKEN if fault.newest else Severity.HARMLESS,
            Subject.SCHEMAS,
            application_id,
            "",
            storage.describe(fault.path),
            fault.what,
        )
        for fault in schema_faults(storage, application_id)
    ]


def _strays(
    storage: Storage, policy: DurabilityPolicy, given: Collection[Manifest], newest: Manifest
) -> tuple[Tally, Tally]:
    """Return the files in a lineage that no given manifest names, and those among them that nobody can need."""
    named = {manifest.path(file) for manifest in given for file in manifest.files}

    def tally(files: Iterable[StoredFile]) -> Tally:
        return _tally(file for file in files if file.path not in named)

    return tally(storage.list(newest.directory)), tally(garbage(storage, newest, policy, now_ms=host_ms()))


def _other_lineages(storage: Storage, lineages: Collection[str], task: str) -> Tally:
    """Return the files of a task in lineages that are not among these."""
    theirs = {f"{task}/{lineage}" for lineage in storage.directories(task)}.difference(lineages)
    return _sum(_tally(storage.list(directory)) for directory in theirs)


def _tally(files: Iterable[StoredFile]) -> Tally:
    sizes = [file.size for file in files if sequence_of(file.path.rpartition("/")[2]) is not None]
    return Tally(len(sizes), sum(sizes))


def _sum(tallies: Iterable[Tally]) -> Tally:
    found = list(tallies)
    return Tally(sum(tally.files for tally in found), sum(tally.size for tally in found))


def _newest(manifests: Iterable[Manifest], owner: Callable[[Manifest], str]) -> dict[str, Manifest]:
    """Return the newest manifest of each owner."""
    newest: dict[str, Manifest] = {}
    for manifest in manifests:
        if manifest.sequence >= newest.setdefault(owner(manifest), manifest).sequence:
            newest[owner(manifest)] = manifest
    return newest


def _task(manifest: Manifest) -> str:
    return f"{manifest.application_id}/{manifest.task_id}"


def _lineage(manifest: Manifest) -> str:
    return manifest.directory


def _broken(manifest: Manifest, subject: Subject, where: str, what: str) -> Finding:
    return Finding(Severity.BROKEN, subject, manifest.application_id, manifest.task_id, where, what)


def _rank(finding: Finding) -> tuple[object, ...]:
    return (_SEVERITIES.index(finding.severity), finding.application_id, finding.task_id, finding.where, finding.what)
