"""``Job``: the owner of state, its place, and its progress; and how a job is shown, as text and in a notebook.

Rule of this module: it sees options, the session and what is recorded of the state, never rows.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Self
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.inspect.checkpoint.kept_manifest import OF_ONE
from millpond.adapters.spark.job.options import BACKEND_CONF, DEFAULT_BACKEND, JobOptions
from millpond.adapters.spark.rows.dead_letters import ErrorHandling, read_dead_letters
from millpond.adapters.spark.rows.late_rows import read_late_rows
from millpond.adapters.spark.session.session import active_session, default_partitions
from millpond.processors.distribution.plan import Plan, make_plan
from millpond.processors.runtime.topology import Topology
from millpond.releases import Numbered, newest_number
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.durability.storage.uris import shown
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.evolution.history import History
from millpond.stores.evolution.verbs.declarations import VerbOf, application_of, holds_state
from millpond.stores.specs.directory import check_plain_name, plain_name

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A job, or a part of it that has state of its own.

    Attributes:
        application_id: its name.
        storage: where the durable state is.
        options: what the user has settled.
        reached: whether the storage could be read when a query was built; see ``looking``.
        verb: which one it is a part for; None for the job as a whole, and that of a topology.
    """

    application_id: str
    storage: Storage
    options: JobOptions
    reached: bool = True
    verb: VerbOf | None = None

    @classmethod
    def of(cls, application_id: str, state_dir: str, options: JobOptions) -> Self:
        """Return the job of that name.

        Raises:
            ConfigurationError: no directory can have that name, or there is no such storage.
        """
        check_plain_name("application id", application_id)
        return cls(application_id, Storage.from_uri(state_dir), options)

    @property
    def facts(self) -> dict[str, str]:
        """The facts to show of it, by the names of the arguments; no secret is among them."""
        asked = self.options.backend
        if asked is None:
            session = SparkSession.getActiveSession()
            asked = (session and session.conf.get(BACKEND_CONF, None)) or DEFAULT_BACKEND
        backend = shown(asked) if isinstance(asked, str) else type(asked).__name__
        return {"application_id": self.application_id, "state_dir": shown(self.storage.uri), "backend": backend}

    @property
    def apart(self) -> str | None:
        """Why no verb of a chain is to share an operator; None if they may."""
        upgrade = self.options.upgrade
        if not self.options.shares_operators:
            return "share_operators is False"
        if not self.reached:
            return "the state could not be looked at"
        known = upgrade is None or newest_number(Numbered.STATE_VALUE, upgrade.release) != OF_ONE
        return None if upgrade is None or known else f"release {upgrade.release} knows no other"

    def part(self, name: str) -> Self:
        """Return a part of the job with state of its own, ``<application_id>.<name>``.

        Raises:
            ConfigurationError: no directory can have that name.
        """
        check_plain_name("name", name)
        return replace(self, application_id=f"{self.application_id}.{name}")

    def looking(self) -> Self:
        """Return this job, to build a query with: it knows whether its storage can be read now.

        If not, the query is built as if there were no state. What there is says more when the query runs: before the
        first row is put, each worker compares.
        """
        fault = self.storage.unreachable(self.application_id)
        if fault is not None:
            _log.warning("a query of %r is built without a look at its state: %s", self.application_id, fault)
        return replace(self, reached=fault is None)

    def of_verb(self, owner: str, name: str, *, goes_on: bool) -> Self:
        """Return this part of a job, as that of a verb.

        Args:
            owner: the application id of the whole job.
            name: the verb's.
            goes_on: whether it goes on with the state that there is, which it may have under a former name.

        Raises:
            ConfigurationError: what is declared of verbs contradicts itself, or says that this one is gone.
            DurabilityError: the storage failed.
        """
        former: list[str] = []
        evolution = self.options.evolution
        if evolution is not None and evolution.tells_of(name):
            former = evolution.of_verbs.former_of_asked(name)
        if not (former and goes_on and self.reached) or self.history(name).evolved:
            return replace(self, verb=VerbOf(owner, name, name))
        begun = next((one for one in (name, *former) if self._has_begun(owner, one)), name)
        return replace(self, verb=VerbOf(owner, name, begun))

    def _has_begun(self, owner: str, name: str) -> bool:
        """Return whether a verb has state of its own, beyond files of a driver that died while carrying state over."""
        application_id = application_of(owner, name)
        history = History.of(self.storage, application_id, plain_name(name))
        return history.evolved or (history.partitions is not None and holds_state(self.storage, application_id))

    @property
    def begun_as(self) -> str:
        """The id of the application whose state it goes on with."""
        return self.application_id if self.verb is None else self.verb.application_id

    def history(self, sink: str) -> History:
        """Return the generations of the state of the query for a sink or verb; none if the storage could not be read.

        Raises:
            FormatError: a record is damaged, or of a later release.
            DurabilityError: the storage failed.
        """
        if not self.reached:
            return History(self.storage, self.application_id, plain_name(sink), None, ())
        return History.of(self.storage, self.application_id, plain_name(sink))

    def history_so_far(self, sink: str) -> History:
        """Return the generations of the state that the query for a sink or verb goes on with.

        Raises as ``history``.
        """
        if self.verb is None or self.verb.before == self.verb.name:
            return self.history(sink)
        return replace(self, application_id=self.begun_as).history(self.verb.before)

    def handling(self, name: str, unit: TimeUnit) -> ErrorHandling:
        """Return how a query of the sink or verb ``name`` handles records that it cannot process.

        Args:
            name: of the sink or the verb.
            unit: what their timestamps count.
        """
        return ErrorHandling(self.options.on_error, self.storage, self.application_id, name, uuid4().hex, unit)

    def dead_letters(self, name: str | None) -> DataFrame:
        """Return the dead letters of the sink or verb ``name``, or of all.

        Raises:
            ConfigurationError: there is no session.
            DurabilityError: the storage failed.
        """
        session = active_session("reading dead letters")
        return read_dead_letters(session, self.storage, self.application_id, name)

    def late_rows(self, name: str | None) -> DataFrame:
        """Return the late rows of the sink or verb ``name``, or of all.

        Raises:
            ConfigurationError: there is no session.
            DurabilityError: the storage failed.
        """
        return read_late_rows(active_session("reading late rows"), self.storage, self.application_id, name)

    def plan(self, session: SparkSession, topology: Topology, sink: str | None) -> Plan:
        """Return the plan for one sink; the user, the existing state or the session decides the number of partitions.

        Raises:
            TopologyError: the topology has no such sink, or several and none was named, or one sink in several places.
        """
        asked = self.options.partitions
        plan = make_plan(topology, sink, asked or 1)
        if not plan.stages:
            return plan
        default = default_partitions(session)
        return replace(plan, partitions=asked or self.history_so_far(plan.sink).partitions or default)


def as_text(kind: str, facts: Mapping[str, str | Sequence[str]]) -> str:
    """Return the facts as Python shows an object of that kind."""
    return f"{kind}({', '.join(f'{name}={fact!r}' for name, fact in facts.items())})"


def as_html(kind: str, facts: Mapping[str, str], head: Sequence[str] = (), rows: Iterable[Sequence[str]] = ()) -> str:
    """Return the facts in a line, and a table below it where there are rows."""
    line = " · ".join(f"{name} <code>{escape(fact)}</code>" for name, fact in facts.items())
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{_cells('th', head)}</tr></thead><tbody>{body}</tbody></table>" if body else ""
    return f"<div><b>{kind}</b> {line}</div>{table}"


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f'<{tag} style="text-align: left">{escape(text)}</{tag}>' for text in texts)
