"""The report of a verification, as data.

Rule of this module: it knows what can be wrong and how to mend it, and reads no state.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class Severity(StrEnum):
    """The severity of a finding."""

    HARMLESS = "harmless"
    """Nothing has to be done."""

    HEALABLE = "healable"
    """Something is wrong, and can be made anew from what is right."""

    BROKEN = "broken"
    """Durable state cannot be read, or is not what it should be."""


class Subject(StrEnum):
    """The subject of a finding, which also determines the cure."""

    FILE = "durable file"
    """A durable file is gone, damaged, of an unknown format, or cannot be read."""

    CHAIN = "manifest"
    """The files that a manifest names do not make a version."""

    ROWS = "rows"
    """Rows are as they were written, but make no sense."""

    SCHEMAS = "schemas"
    """The history of the schemas of a verb's rows."""

    COPY = "local copy"
    """A local copy that differs from its seal or from the durable files; it must not be used."""

    UNTRUSTED_COPY = "local copy that is not used"
    """A local copy that the next start replaces, although nothing need be wrong with it."""

    UNCHECKED_COPY = "local copy that could not be checked"
    """A local copy that is in use, or cannot be opened or compared here."""


_CURES = {
    Subject.FILE: "put an undamaged copy back, or restart at an earlier micro-batch; or, if the machine that ran the "
    "task last has its local copies, start the job there: proven ones stand in, and it writes a fresh snapshot of them",
    Subject.CHAIN: "restart at an earlier micro-batch",
    Subject.ROWS: "run the release and the serdes that wrote them, or restart at an earlier micro-batch",
    Subject.SCHEMAS: "put an undamaged copy back",
    Subject.COPY: "delete the copy; the next start restores it",
    Subject.UNTRUSTED_COPY: "nothing; the next start restores it or brings it on",
    Subject.UNCHECKED_COPY: "verify again at another time, or where it can be opened",
}


@dataclass(frozen=True)
class Finding:
    """Something that a verification found.

    Attributes:
        severity: its severity.
        subject: its subject.
        application_id: the application.
        task_id: the task; empty if it concerns the whole application.
        where: the file or directory, by its full name.
        what: the fault.
    """

    severity: Severity
    subject: Subject
    application_id: str
    task_id: str
    where: str
    what: str

    @property
    def cure(self) -> str:
        """The cure, as advice to the user."""
        return _CURES[self.subject]

    def __str__(self) -> str:
        owner = f"task {self.task_id!r} of {self.application_id!r}" if self.task_id else repr(self.application_id)
        where = "" if self.where in self.what else f", {self.where}"
        return f"{self.severity}: {self.subject} of {owner}{where}: {self.what}"


class Tally(NamedTuple):
    """The number of files, and their bytes."""

    files: int = 0
    size: int = 0


@dataclass(frozen=True)
class Report:
    """The result of a verification.

    Attributes:
        findings: the findings, the worst first.
        tasks: the number of tasks.
        read: the durable files that were read to their end.
        copies: the number of local copies that were compared with them.
        unnamed: files in the tasks' lineages that no given manifest names: earlier micro-batches need them, or attempts
            that lost wrote them, or they are garbage.
        garbage: the unnamed files beyond the retention, which nobody can need.
        other_lineages: files of the same tasks in other lineages, which belong to other sinks' checkpoints or to
            deleted ones.
    """

    findings: tuple[Finding, ...] = ()
    tasks: int = 0
    read: Tally = field(default=Tally())
    copies: int = 0
    unnamed: Tally = field(default=Tally())
    garbage: Tally = field(default=Tally())
    other_lineages: Tally = field(default=Tally())

    @property
    def sound(self) -> bool:
        """True if nothing has to be done."""
        return all(finding.severity is Severity.HARMLESS for finding in self.findings)

    @property
    def intact(self) -> bool:
        """True if the durable state is as it should be."""
        return not self.of(Severity.BROKEN)

    def of(self, severity: Severity) -> list[Finding]:
        """Return the findings of that severity."""
        return [finding for finding in self.findings if finding.severity is severity]

    def lines(self) -> Iterator[str]:
        """Yield the report as text: a line for each finding, the cure of each subject, and the numbers."""
        yield from map(str, self.findings)
        for subject in dict.fromkeys(finding.subject for finding in self.findings):
            yield f"to do ({subject}): {_CURES[subject]}"
        yield f"{self.tasks} tasks: {_told(self.read)} read to the end, {self.copies} local copies compared"
        yield f"not named here: {_told(self.unnamed)}, of which {_told(self.garbage)} are beyond the retention"
        if self.other_lineages.files:
            yield f"of other lineages: {_told(self.other_lineages)}; delete them only if their checkpoint is deleted"
        counts = ", ".join(f"{len(self.of(severity))} {severity}" for severity in reversed(Severity))
        yield f"{'sound' if self.sound else 'NOT SOUND'}: {counts} findings"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as an object of JSON."""
        findings = [asdict(finding) | {"cure": finding.cure} for finding in self.findings]
        tallies = {name: getattr(self, name)._asdict() for name in ("read", "unnamed", "garbage", "other_lineages")}
        return {"sound": self.sound, "findings": findings, "tasks": self.tasks, "copies": self.copies, **tallies}


def _told(tally: Tally) -> str:
    return f"{tally.files} files ({tally.size:,} bytes)"
