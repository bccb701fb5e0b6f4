"""Faults on demand: the faults, the steps, and a plan of when they happen.

Rule of this module: it damages nothing itself. An object that can fail asks its plan at each step, and does as the plan
answers: ``FaultyBackend`` and ``FaultySupplier`` (``millpond.stores.testing.faults.backend``), ``FaultyStorage``
(``millpond.stores.testing.faults.storage``) and ``FaultyClock``. A plan is a function of the steps alone, so that the
same steps meet the same faults.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from enum import StrEnum
from types import TracebackType
from typing import Final, Self, TypeAlias

from millpond.errors import (
    ArgumentConflictError,
    BackendError,
    BackendUnavailableError,
    CorruptStoreError,
    DurabilityError,
    InvalidArgumentError,
    MillpondError,
)

SEED_VARIABLE: Final = "MILLPOND_FAULT_SEED"
DEATH_STATUS: Final = 77
"""The exit status of a process that dies by ``Fault.DEATH``."""


class Fault(StrEnum):
    """A fault that can happen at a step."""

    ERROR = "error"
    """It fails, and nothing was done, or a part of it."""
    APPLIED = "applied"
    """It is done, and fails all the same, as when a connection breaks before the answer."""
    LIE = "lie"
    """It reports success, but a written file is cut off, read bytes have a wrong bit, a deleted file is still there."""
    LAG = "lag"
    """A listing does not show the newest file yet."""
    DAMAGE = "damage"
    """An engine finds its own files damaged."""
    AWAY = "away"
    """An engine cannot be reached now."""
    JUMP = "jump"
    """The clock jumps, forward or back."""
    DELAY = "delay"
    """It takes longer."""
    DEATH = "death"
    """The process ends at once, before the step or in the middle of it."""


class Step(StrEnum):
    """A step at which a fault can happen."""

    BACKEND_OPEN = "open the backend"
    BACKEND_GET = "get"
    BACKEND_SCAN = "scan"
    BACKEND_WRITE = "write to the backend"
    BACKEND_WRITTEN = "have written to the backend"
    BACKEND_LOAD = "load the backend"
    BACKEND_FLUSH = "flush the backend"
    BACKEND_CLOSE = "close the backend"
    FILE_CREATE = "create a file"
    FILE_WRITE = "write to a file"
    FILE_FINISH = "finish a file"
    FILE_READ = "read a file"
    FILE_LIST = "list files"
    FILE_DELETE = "delete a file"
    CLOCK = "read the clock"


_ENGINE: Final = {Fault.ERROR, Fault.DAMAGE, Fault.AWAY, Fault.DELAY, Fault.DEATH}
_FILE: Final = {Fault.ERROR, Fault.DELAY, Fault.DEATH}
POSSIBLE: Final[dict[Step, frozenset[Fault]]] = {
    Step.BACKEND_OPEN: frozenset(_ENGINE),
    Step.BACKEND_GET: frozenset(_ENGINE),
    Step.BACKEND_SCAN: frozenset(_ENGINE),
    Step.BACKEND_WRITE: frozenset(_ENGINE | {Fault.APPLIED}),
    Step.BACKEND_WRITTEN: frozenset({Fault.DELAY, Fault.DEATH}),
    Step.BACKEND_LOAD: frozenset(_ENGINE),
    Step.BACKEND_FLUSH: frozenset(_ENGINE),
    Step.BACKEND_CLOSE: frozenset({Fault.APPLIED, Fault.DELAY, Fault.DEATH}),
    Step.FILE_CREATE: frozenset(_FILE),
    Step.FILE_WRITE: frozenset(_FILE | {Fault.LIE}),
    Step.FILE_FINISH: frozenset(_FILE | {Fault.APPLIED}),
    Step.FILE_READ: frozenset(_FILE | {Fault.LIE}),
    Step.FILE_LIST: frozenset(_FILE | {Fault.LAG}),
    Step.FILE_DELETE: frozenset(_FILE | {Fault.APPLIED, Fault.LIE}),
    Step.CLOCK: frozenset({Fault.JUMP}),
}
"""The faults that each step can meet."""

SURVIVABLE: Final = tuple(fault for fault in Fault if fault is not Fault.DEATH)
"""All faults that do not end the process which asks."""

Choice: TypeAlias = Callable[[Step], Fault | None]
"""A function that is called at each step, and returns a fault that is possible there, or None."""


class InjectedFault(MillpondError):
    """A failure that a plan has asked for; caught apart from other failures."""


class InjectedBackendFault(InjectedFault, BackendError):
    """An engine fails because a plan has asked for it."""


class InjectedDamage(InjectedFault, CorruptStoreError):
    """An engine reports damage because a plan has asked for it."""


class InjectedAbsence(InjectedFault, BackendUnavailableError):
    """An engine cannot be reached because a plan has asked for it."""


class InjectedStorageFault(InjectedFault, DurabilityError):
    """A storage fails because a plan has asked for it."""


class FaultPlan:
    """A plan of faults. Used as a context manager, it adds to every error how to repeat it.

    Build it with ``at``, for one fault at one step, or with ``seeded``, for faults by chance. A plan that travels to
    another process goes on there by itself.

    Attributes:
        steps: the number of times that each step was reached.
        met: the faults so far, in order.
        lies: the files whose content was cut off, and the content that they should have.
    """

    def __init__(self, choose: Choice | None = None, *, how: str = "", delay: float = 0.002) -> None:
        self._choose = choose or (lambda _: None)
        self._how = how
        self._delay = delay
        self._quiet = False
        self.steps: Counter[Step] = Counter()
        self.met: list[tuple[Step, Fault]] = []
        self.lies: dict[str, bytes] = {}

    @classmethod
    def at(cls, number: int, fault: Fault, *steps: Step) -> Self:
        """Return a plan of ``fault`` at the ``number``-th step where it is possible, counted from one; 0 for never.

        Args:
            number: the step; a test that counts up until a plan has ``met`` nothing has tried every step.
            fault: the fault.
            steps: the steps that count; all if there are none.
        """
        return cls(_At(number, fault, frozenset(steps) or frozenset(Step)), how=f"{fault} number {number}")

    @classmethod
    def seeded(
        cls,
        seed: int | None = None,
        *,
        rate: float = 0.02,
        faults: Collection[Fault] = tuple(fault for fault in Fault if fault is not Fault.DEATH),
    ) -> Self:
        """Return a plan of random faults: at each step, with the probability ``rate``, one of the possible ``faults``.

        Args:
            seed: the seed; by default from ``fault_seed``.
            rate: the probability, from 0 to 1.
            faults: the faults; by default all but deaths.
        """
        number = fault_seed() if seed is None else seed
        return cls(_Seeded(number, rate, faults), how=f"{SEED_VARIABLE}={number}")

    def meet(self, step: Step) -> Fault | None:
        """Note that ``step`` is reached, and return its fault. Delays and deaths happen here, others in the caller.

        Raises:
            ConfigurationError: the plan asks for a fault that is not possible at this step.
        """
        if self._quiet:
            return None
        self.steps[step] += 1
        fault = self._choose(step)
        if fault is None:
            return None
        if fault not in POSSIBLE[step]:
            raise ArgumentConflictError(
                f"{fault.value!r} is not possible where the step is {step.value!r}; choose one of "
                f"{sorted(one.value for one in POSSIBLE[step])}, or None"
            )
        self.met.append((step, fault))
        if fault is Fault.DEATH:
            os._exit(DEATH_STATUS)
        if fault is Fault.DELAY:
            time.sleep(self._delay)
            return None
        return fault

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Let nothing happen inside: for a test that looks at the outcome."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def failure(self, step: Step, outcome: str = "not applied") -> str:
        """Return the message of an error at ``step``."""
        return f"{step.value!r} number {self.steps[step]} fails on demand, {outcome}"

    def describe(self) -> str:
        """Return a line about the faults so far, and how to repeat them."""
        last = ", ".join(f"{fault} at {step.value!r}" for step, fault in self.met[-5:])
        return (
            f"faults: {len(self.met)} in {self.steps.total()} steps{last and ', the last of them ' + last}"
            f"{self._how and '; to repeat: ' + self._how}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(self.describe())


class FaultyClock:
    """A clock in milliseconds that advances by ``tick`` whenever it is read, and jumps when ``plan`` says so."""

    def __init__(self, plan: FaultPlan, now: int, *, tick: int = 1, jump: int = 86_400_000) -> None:
        self._plan = plan
        self._now = now
        self._tick = tick
        self._jump = jump

    def __call__(self) -> int:
        self._now += self._tick
        if self._plan.meet(Step.CLOCK) is Fault.JUMP:
            # Back by more than forward, in turn: the clock neither runs away nor comes back to where it was.
            self._now += self._jump
            self._jump = -self._jump + (self._jump > 0)
        return self._now


def fault_seed() -> int:
    """Return the seed that the environment variable ``MILLPOND_FAULT_SEED`` gives, or else a new one.

    Raises:
        ConfigurationError: the variable is not a number.
    """
    text = os.environ.get(SEED_VARIABLE)
    if text is None:
        return random.SystemRandom().randrange(1 << 32)
    try:
        return int(text)
    except ValueError:
        raise InvalidArgumentError(
            f"{SEED_VARIABLE} is {text!r}; give the number that a failed test has printed, or unset it"
        ) from None


class _At:
    def __init__(self, number: int, fault: Fault, steps: frozenset[Step]) -> None:
        self._left = number
        self._fault = fault
        self._steps = steps

    def __call__(self, step: Step) -> Fault | None:
        if step not in self._steps or self._fault not in POSSIBLE[step]:
            return None
        self._left -= 1
        return self._fault if self._left == 0 else None


class _Seeded:
    def __init__(self, seed: int, rate: float, faults: Collection[Fault]) -> None:
        self._chance = random.Random(seed)
        self._rate = rate
        self._faults = {step: sorted(possible.intersection(faults)) for step, possible in POSSIBLE.items()}

    def __call__(self, step: Step) -> Fault | None:
        if self._chance.random() >= self._rate or not self._faults[step]:
            return None
        return self._chance.choice(self._faults[step])
