"""``VerbRunner``: verbs as parts of one job, which begin here: their inputs, and the state that there is, are checked.

Rule of this module: it knows what all verbs share, and no verb by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from millpond.adapters.spark.job.job import Job
from millpond.adapters.spark.session.session import check_workers
from millpond.adapters.spark.verbs.frames.backfill import Backfill
from millpond.adapters.spark.verbs.frames.between import Results
from millpond.adapters.spark.verbs.frames.inputs import RowInput, check_equal_times
from millpond.adapters.spark.verbs.frames.kept_schemas import ColumnChanges, KeptSchemas
from millpond.adapters.spark.verbs.frames.verb_run import VerbRun
from millpond.errors import DuplicateNameError, StreamingOrStaticError
from millpond.processors.calls.readings import Packing
from millpond.processors.distribution.plan import Plan
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.evolution.backfilling import check_ended, check_may_begin


@dataclass(frozen=True)
class VerbRunner:
    """Runs the verbs of a job.

    Attributes:
        job: the job.
        complete: a DataFrame any row of which says that all inputs are complete.
        backfill: of the verbs, if they run for one; None if they do not.
        results: of the verbs whose operators others may share.
        asked: the plans of the verbs that were asked for so far, by name.
    """

    job: Job
    complete: DataFrame | None
    backfill: Backfill | None = None
    results: Results = field(default_factory=Results)
    asked: dict[str, Plan] = field(default_factory=dict)

    def verb(self, name: str, inputs: Sequence[RowInput], changes: ColumnChanges) -> VerbRun:
        """Return a verb of that name on these inputs.

        Raises:
            ConfigurationError: the inputs are not all streaming or all static, or streaming in a backfill, times are of
                two kinds, the name is that of an input, or the session cannot run a verb.
            StateConflictError: the verb has begun without this backfill, or waits for one to come to its end, or its
                state has rows that were put with other expressions.
        """
        if name in (one.role for one in inputs):
            raise DuplicateNameError(f"the verb's name is {name!r}, which is also the name of its input; give another")
        changes.check(inputs)
        check_equal_times(name, inputs)
        streaming = inputs[0].frame.isStreaming
        if any(one.frame.isStreaming is not streaming for one in inputs):
            raise StreamingOrStaticError(
                f"the verb {name!r} has a streaming and a static DataFrame; make both one or the other"
            )
        if streaming and self.backfill is not None:
            raise StreamingOrStaticError(
                f"a backfill takes inputs that have an end, and those of the verb {name!r} are streaming DataFrames; "
                "give static ones here, and the streaming ones to the Millpond itself"
            )
        session = inputs[0].frame.sparkSession
        check_workers(session)
        job, handling = self.job.part(name), self.job.handling(name, TimeUnit.MICROSECOND)
        if self.backfill is None:
            job = job.looking()
        job = job.of_verb(self.job.application_id, name, goes_on=streaming)
        kept = self._keeps_state(job, name, streaming=streaming)
        complete = self.complete if streaming else session.range(1)
        if self.backfill is not None:
            complete = self.backfill.complete
        schemas = KeptSchemas(job, name, changes, kept)
        schemas.note_expressions(inputs)
        return VerbRun(
            job=job,
            name=name,
            session=session,
            inputs=list(inputs),
            schemas=schemas,
            handling=handling,
            complete=complete,
            streaming=streaming,
            results=self.results,
            asked=self.asked,
            backfill=self.backfill,
        )

    def _keeps_state(self, job: Job, name: str, *, streaming: bool) -> bool:
        """Return whether a run leaves state, for which the state that there is has to be such that it can begin.

        Raises:
            StateConflictError: it is not.
        """
        if not streaming and self.backfill is None:
            return False
        history = job.history(name)
        if streaming:
            check_ended(history)
        elif history.backfill is None:
            check_may_begin(history)
        return streaming or history.backfill is None


@dataclass
class VerbStart:
    """Begins a verb once its inputs are known.

    Attributes:
        runner: runs it.
        changes: what the user declares of the inputs' columns.
        run: the verb on its way, once it has begun.
    """

    runner: VerbRunner
    changes: ColumnChanges
    run: VerbRun = field(init=False)

    def __call__(self, name: str, inputs: Sequence[RowInput]) -> Packing:
        """Begin a verb on these inputs, and return the packing of its rows.

        Raises what ``VerbRunner.verb`` raises.
        """
        self.run = self.runner.verb(name, inputs, self.changes)
        return self.run.schemas
