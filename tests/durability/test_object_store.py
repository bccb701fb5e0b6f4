"""Durable state on an object store: what it promises, whatever becomes of a request, and how few requests it takes."""

import shutil
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Barrier, Event

import pytest

from millpond.errors import ConfigurationError, DurabilityError, MissingFileError, StateConflictError
from millpond.stores.backend.registry import supplier
from millpond.stores.cleaning.durable import StateCleaning
from millpond.stores.cleaning.leftover import Age
from millpond.stores.cleaning.named import Named
from millpond.stores.durability import DurabilityPolicy, Manifest, Severity, Storage, TaskState, claim, verify
from millpond.stores.durability.checking.repair import repairs_of_garbage
from millpond.stores.durability.manifests.claim import claimed_by
from millpond.stores.durability.manifests.garbage import try_collect_garbage
from millpond.stores.durability.manifests.pins import Pin
from millpond.stores.durability.storage.durable_file import sequence_of
from millpond.stores.durability.storage.s3 import S3Place
from millpond.stores.evolution.history import History
from millpond.stores.evolution.record import EvolutionRecord
from millpond.stores.evolution.shape import Shape
from tests.crash.durable_task import SPECS, commit, content, expected
from tests.durability.object_store import BUCKET, SECRET, Fault, ObjectStore, Request, serving

POLICY = DurabilityPolicy(max_deltas=2, retained_commits=1, retained_age=0, retained_forks=10**9)
BACKENDS = ["memory", "lmdb", "rocksdb"]
NAMED = {"app": {spec.name: spec for spec in SPECS}}


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with serving() as store:
        yield store


@pytest.fixture
def storage(store: ObjectStore, request: pytest.FixtureRequest) -> Storage:
    """A prefix of the test's own."""
    return store.storage(f"{abs(hash(request.node.name))}")


def task(storage: Storage, local_dir: Path, backend: str = "memory", policy: DurabilityPolicy = POLICY) -> TaskState:
    return TaskState(
        SPECS,
        supplier(backend),
        application_id="app",
        task_id="0_0",
        local_dir=local_dir,
        storage=storage,
        fingerprint="one",
        policy=policy,
        run="1" * 32,
    )


def committed(storage: Storage, local_dir: Path, backend: str, numbers: range) -> list[Manifest]:
    """Return the manifests of as many micro-batches, each by a process of its own."""
    manifests: list[Manifest] = []
    for number in numbers:
        with task(storage, local_dir, backend) as state:
            manifests.append(commit(state, manifests[-1] if manifests else None, number))
    return manifests


def file_names(storage: Storage, manifest: Manifest) -> set[str]:
    return {file.path.rpartition("/")[2] for file in storage.list(manifest.directory)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_task_lives_on_an_object_store(storage: Storage, tmp_path: Path, backend: str) -> None:
    manifests = committed(storage, tmp_path / "here", backend, range(1, 9))
    newest = manifests[-1]
    with task(storage, tmp_path / "there", backend) as elsewhere:
        assert content(elsewhere, manifests[-2]) == expected(7)
        assert content(elsewhere, newest) == expected(8)
    there = file_names(storage, newest)
    named = {file.name for manifest in manifests[-2:] for file in manifest.files}
    assert named <= there
    assert 1 not in {sequence_of(name) for name in there}, "garbage has been collected"
    assert {pin.run for file in storage.list(newest.directory) if (pin := Pin.of(file))} == {"1" * 32}
    local_dirs = [tmp_path / "here", tmp_path / "there"]
    assert verify(storage, lambda: [newest], specs=NAMED, local_dirs=local_dirs).findings == ()


def test_the_state_of_an_application_that_nobody_needs_is_cleaned_up(storage: Storage, tmp_path: Path) -> None:
    newest = committed(storage, tmp_path, "memory", range(1, 9))[-1]
    policy, later = replace(POLICY, retained_forks="6 hours"), Age(time.time_ns() // 1_000_000 + 30 * 86_400_000, 1)
    for named, alone in (([Named("checkpoint", [[newest]])], True), ([], False), ([], True)):
        assert {file.name for file in newest.files} <= file_names(storage, newest)
        for leftover in StateCleaning(storage, named, lambda _, alone=alone: alone, later, policy).leftovers():  # type: ignore[misc]
            if leftover.delete is not None:
                leftover.delete()
    assert storage.directories("") == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_lost_object_is_found_and_local_copies_stand_in(storage: Storage, tmp_path: Path, backend: str) -> None:
    newest = committed(storage, tmp_path, backend, range(1, 4))[-1]
    storage.delete(newest.path(newest.files[0]))
    found = verify(storage, lambda: [newest], specs=NAMED).findings
    assert {finding.severity for finding in found} == {Severity.BROKEN}
    assert all(finding.where.startswith(f"s3://{BUCKET}/") for finding in found)
    with task(storage, tmp_path / "elsewhere", backend) as state, pytest.raises(MissingFileError, match="s3://bucket"):
        state.open(newest)
    if backend == "memory":  # it was in a process that has ended
        return
    with task(storage, tmp_path, backend) as state:
        after = commit(state, newest, 4)
    assert len(after.files) == 1
    assert verify(storage, lambda: [after], specs=NAMED, local_dirs=[tmp_path]).findings == ()


def test_what_nobody_can_need_is_deleted_by_a_repair(storage: Storage, tmp_path: Path) -> None:
    keep = replace(POLICY, retained_age=10**9)
    manifest: Manifest | None = None
    with task(storage, tmp_path, policy=keep) as state:
        for number in range(1, 10):
            manifest = commit(state, manifest, number)
    assert manifest is not None
    before = file_names(storage, manifest)
    forks_end = replace(POLICY, retained_forks=0)
    for repair in repairs_of_garbage(storage, [manifest], forks_end):
        repair.do()
    assert {file.name for file in manifest.files} <= file_names(storage, manifest) < before
    with task(storage, tmp_path / "elsewhere") as state:
        assert content(state, manifest) == expected(9)


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Check that an error within names the place."""
    try:
        yield
    except DurabilityError as error:
        if place not in str(error):
            raise AssertionError("an error that does not say where") from error
        raise


def survives(store: ObjectStore, storage: Storage, directory: Path, backend: str, number: int, *faults: Fault) -> bool:
    """Tell whether a task sends ``number`` requests; check that it loses nothing if those from that one on fail.

    It commits three micro-batches without a fault, then a delta, and a snapshot with a collection of garbage. What
    fails is tried again, as Spark does: by another process, with the manifest that was committed before.
    """
    kept = committed(storage, directory / "here", backend, range(1, 4))
    store.fail(number, *faults)
    for batch in (4, 5):
        for attempt in count(1):
            may_fail: AbstractContextManager[None] = nullcontext()
            if attempt <= len(faults):
                may_fail = suppress(DurabilityError)
            with may_fail, naming(f"s3://{BUCKET}/"), task(storage, directory / "here", backend) as state:
                kept.append(commit(state, kept[-1], batch))
                break
    met = store.met()
    assert kept[-1].sequence == 5
    with task(storage, directory / "there", backend) as elsewhere:
        assert content(elsewhere, kept[-2]) == expected(4)
        assert content(elsewhere, kept[-1]) == expected(5)
    assert verify(storage, lambda: kept[-2:], specs=NAMED, local_dirs=[directory / "there"]).sound
    shutil.rmtree(directory)
    return met


def of_all_requests(store: ObjectStore, directory: Path, backend: str, *faults: Fault) -> int:
    """Return how many requests can fail, after each of them has failed in a life of its own."""
    for number in count(1):
        storage = store.storage(f"{directory.name}-{number}")
        if not survives(store, storage, directory / str(number), backend, number, *faults):
            return number - 1
    raise AssertionError


def test_a_lost_answer_to_the_write_of_a_delta_loses_nothing(
    store: ObjectStore, storage: Storage, tmp_path: Path
) -> None:
    assert survives(store, storage, tmp_path / "life", "lmdb", 4, Fault.LOST)


@pytest.mark.long
@pytest.mark.parametrize(
    ("backend", "faults"),
    [
        *((backend, [Fault.LOST]) for backend in BACKENDS),
        *(("lmdb", faults) for faults in ([Fault.BUSY], [Fault.LATE], [Fault.LOST, Fault.ERROR], [Fault.ERROR] * 3)),
    ],
)
def test_faults_of_any_requests_lose_nothing(
    store: ObjectStore, tmp_path: Path, backend: str, faults: list[Fault]
) -> None:
    assert of_all_requests(store, tmp_path, backend, *faults) > 10


def test_a_request_that_fails_is_sent_again_a_bounded_number_of_times(store: ObjectStore) -> None:
    storage = store.storage("again", max_attempts=2)
    store.fail(1, Fault.BUSY)
    storage.put("one", b"1")
    assert store.met()
    store.taken()
    store.fail(1, *[Fault.ERROR] * 9)
    with pytest.raises(DurabilityError, match=r"cannot write s3://bucket/again/two.*check"):
        storage.put("two", b"2")
    assert not store.met()
    assert store.taken()["PUT"] == 2
    store.fail(1, Fault.LATE, Fault.LATE)
    with pytest.raises(DurabilityError, match="cannot list s3://bucket/again"):
        storage.list("")
    assert store.met()


@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.LOST, pytest.param(Fault.LATE, marks=pytest.mark.long)])
def test_another_job_is_refused_whatever_becomes_of_the_claims_requests(store: ObjectStore, fault: Fault) -> None:
    for number in count(1):
        storage = store.storage(f"claim-{fault.name}-{number}")
        store.fail(number, fault)
        with suppress(DurabilityError):
            claim(storage, "app", "one")
        met = store.met()
        claim(storage, "app", "one")
        assert claimed_by(storage, "app") == "one"
        with pytest.raises(StateConflictError, match="another topology"):
            claim(storage, "app", "two")
        assert len(storage.list("app")) == 1
        if not met:
            break
    assert number > 3


def test_of_two_jobs_that_claim_at_once_no_two_go_on(store: ObjectStore) -> None:
    both_wrote = Barrier(2)

    def together(request: Request) -> None:
        if request.kind == "PUT" and "/topology-" in request.path:
            both_wrote.wait(10)

    def claimed(topology: str) -> bool:
        try:
            claim(store.storage("at-once"), "app", topology)
        except StateConflictError:
            return False
        return True

    store.before = together
    try:
        with ThreadPoolExecutor(2) as pool:
            assert sum(pool.map(claimed, ["one", "two"])) < 2
    finally:
        store.before = lambda request: None


def test_what_is_written_once_is_never_replaced_even_by_who_began_first(store: ObjectStore) -> None:
    storage, first_may_go_on, first_has_begun = store.storage("once"), Event(), Event()

    def held(request: Request) -> None:
        if request.kind == "PUT" and not first_has_begun.is_set():
            first_has_begun.set()
            assert first_may_go_on.wait(10)

    store.before = held
    try:
        with ThreadPoolExecutor(1) as pool:
            slow = store.storage("once", request_timeout=20)
            first = pool.submit(slow.put_once, "a/record", b"first")
            assert first_has_begun.wait(10)
            storage.put_once("a/record", b"second")
            assert storage.read("a/record") == b"second"
            first_may_go_on.set()
            first.result()
    finally:
        store.before = lambda request: None
    assert storage.read("a/record") == b"second"


def test_a_service_without_conditional_puts_takes_what_is_written_once(store: ObjectStore) -> None:
    storage = store.storage("unconditional", conditional_put="false")
    storage.put_once("a/record", b"first")
    storage.put_once("a/record", b"second")
    assert storage.read("a/record") == b"first"


RECORD = EvolutionRecord(1, "t/2#1@out", Shape(2, ()), 10)


@pytest.mark.parametrize("options", [{}, pytest.param({"conditional_put": "false"}, marks=pytest.mark.long)])
@pytest.mark.parametrize("fault", [Fault.LOST, pytest.param(Fault.ERROR, marks=pytest.mark.long)])
def test_an_evolution_record_counts_once_whatever_becomes_of_its_requests(
    store: ObjectStore, fault: Fault, options: dict[str, str]
) -> None:
    for number in count(1):
        storage = store.storage(f"record-{fault.name}-{number}-{len(options)}", **options)
        store.fail(number, fault)
        for _ in range(2):
            with suppress(DurabilityError):
                begun = History.of(storage, "app", "out").begun("t/2", Shape(2, ()))
                if begun.next_generation == 1:
                    begun.keep(RECORD)
        met = store.met()
        found = History.of(storage, "app", "out")
        assert [record.generation for record in found.records] == [0, 1]
        assert found.newest == RECORD
        if not met:
            break
    assert number > 3
    with pytest.raises(StateConflictError, match="by another job"):
        found.keep(replace(RECORD, batch=11))


def test_a_pin_stays_if_its_renewal_fails(store: ObjectStore, storage: Storage, tmp_path: Path) -> None:
    kept = committed(storage, tmp_path, "memory", range(1, 3))
    with task(storage, tmp_path) as state:
        state.open(kept[-1])
    pins = {name for name in file_names(storage, kept[-1]) if name.endswith(".pin")}
    with task(storage, tmp_path) as state:
        store.fail(2, Fault.LOST)
        with pytest.raises(DurabilityError, match=r"cannot write .*\.pin"):
            state.open(kept[-1])
        assert store.met()
    assert pins
    assert pins <= file_names(storage, kept[-1])


def test_a_micro_batch_takes_two_requests(store: ObjectStore, storage: Storage, tmp_path: Path) -> None:
    policy = DurabilityPolicy(max_deltas=4, retained_commits=4, retained_age=0)
    with task(storage, tmp_path / "here", "lmdb", policy) as state:
        store.taken()
        kept = commit(state, None, 1)
        assert store.taken() == Counter(LIST=2, PUT=2), "the claim, and the first snapshot"
        kept = commit(state, kept, 2)
        assert store.taken() == Counter(LIST=1, PUT=2), "the run's pin, and a delta"
        for number in (3, 4, 5):
            kept = commit(state, kept, number)
            assert store.taken() == Counter(LIST=1, PUT=1), "a delta"
        kept = commit(state, kept, 6)
        written = Counter(LIST=2, GET=5, HEAD=5 + 1 + 2, PUT=3 + 1 + 2, DELETE=1 + 1)
        assert store.taken() == written, "a snapshot, the delta beside it, the next pin, and the time"
        state.open(kept)
        assert state.commit() == kept
        assert store.taken() == Counter(LIST=1), "no change"
        for number in range(7, 11):
            kept = commit(state, kept, number)
        store.taken()
        kept = commit(state, kept, 11)
        written += Counter(HEAD=5, PUT=5, DELETE=5)
        assert store.taken() == written, "five files deleted as well"
    with task(storage, tmp_path / "here", "lmdb", policy) as state:
        commit(state, kept, 12)
        assert store.taken() == Counter(LIST=2, PUT=2), "the claim is looked for, a pin, and a delta"
    with task(storage, tmp_path / "elsewhere", "lmdb", policy) as state:
        state.open(kept)
        assert store.taken() == Counter(LIST=2, PUT=1, GET=1, HEAD=1), "a restore of one file"


def test_no_error_and_no_log_shows_a_secret(
    store: ObjectStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = store.storage("hidden")
    told, newest = [repr(storage)], committed(storage, tmp_path, "memory", range(1, 6))[-1]
    storage.put("file", b"1")
    for act in (
        lambda: storage.read("nowhere"),
        lambda: storage.put("file", b"2"),
        lambda: storage.put_once("once", b"2"),
        lambda: storage.list(""),
        lambda: storage.delete("file"),
        lambda: storage.delete_directory("hidden"),
        lambda: Storage.from_uri(f"s3://key:{SECRET}@{BUCKET}/a"),
        lambda: Storage.from_uri(store.uri("a", wrong=1)),
        lambda: Storage.from_uri(store.uri("a", max_attempts=0)),
        lambda: Storage.from_uri(f"gs://key:{SECRET.replace('/', '%2F')}@{BUCKET}/a?wrong=1"),
        lambda: Storage.from_uri(f"unheard-of://key:{SECRET.replace('/', '%2F')}@host/path"),
    ):
        store.fail(1, Fault.ERROR)
        with pytest.raises((DurabilityError, ConfigurationError)) as caught:
            act()
        told.append("".join(traceback.format_exception(caught.value)))
    store.fail(1, Fault.ERROR)
    try_collect_garbage(storage, newest, POLICY, "")
    assert "stays for now: cannot write s3://bucket/hidden/app" in caplog.text
    for part in (SECRET, SECRET.replace("/", "%2F"), SECRET.rpartition("/")[2]):
        assert not any(part in text for text in [*told, caplog.text])


@pytest.mark.parametrize("wanted", [True, False])
def test_a_service_without_conditional_puts_is_asked_for_none(wanted: bool) -> None:
    place = S3Place.of(f"s3://bucket?region=eu-west-1&conditional_put={str(wanted).lower()}")
    assert (place.connect().put_new is not None) is wanted


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("s3:///path", "names no bucket"),
        ("s3://key@bucket/path", "half a key"),
        ("s3://bucket?max_attempts=many", "max_attempts=many"),
        ("s3://bucket?request_timeout=0", "request_timeout=0"),
        ("s3://bucket?request_timeout=", "request_timeout=, but"),
        ("s3://bucket?region=", "region=, but region must be given"),
        ("s3://bucket?conditional_put=perhaps", "conditional_put=perhaps"),
        ("s3://bucket?allow_bucket_creation=true", "the options are region, scheme"),
        ("s3://bucket?scheme=ftp", "scheme=ftp"),
        ("s3://bucket?endpoint_override=ftp://host", "http or https"),
    ],
)
def test_a_uri_of_s3_that_cannot_be_is_refused(uri: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Storage.from_uri(uri)


def test_the_environment_names_the_service(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{store.port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    storage = Storage.from_uri(f"s3a://{BUCKET}/environment?region=us-east-1")
    storage.put_once("file", b"1")
    assert storage.read("file") == b"1"
