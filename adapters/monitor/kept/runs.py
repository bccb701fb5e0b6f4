"""``Runs``: the starts of a query, its last signs of life, and the errors by which it ended, as JSON.

Rule of this module: it knows the form and not where it is kept. Its JSON carries a version number, and a version never
changes its meaning.

Version 1 (times are milliseconds since 1970)::

    {"runs":1,"query":"id","name":"name" or null,"begun":number,
     "last":[{"run":"id","started":time,"seen":time,"ended":time or null,"error":"name" or null,
              "message":"text" or null},…]}
"""

import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

from millpond.errors import CODE, DamagedRecordError, FormatError
from millpond.stores.durability.storage.checked_text import read_count, read_text

VERSION: Final = 1
LAST: Final = 20
"""The number of runs that are kept; all are counted."""

_LONGEST: Final = 1_000
_OWN: Final = re.compile(r"millpond\.errors\.(\w+): (.*)")
"""An error of Millpond's, wherever it stands in a line."""
_CAUSE: Final = re.compile(
    r"^\s*(?:Caused by: )?(?:[\w$]+\.)*([A-Z]\w*(?:Error|Exception|Interrupt|Failure))(?:: (.*))?$"
)
"""A line of a trace that tells of an error, which may say nothing; the last one tells the cause."""
_CODED: Final = re.compile(rf"\[({CODE.pattern})\]\s*$")
_END: Final = re.compile(r"\s*SQLSTATE: \w+\s*$")


@dataclass(frozen=True)
class Run:
    """One run of a query, from its start to its end.

    Attributes:
        run: its id.
        started: when it was started.
        seen: when it was last known to be running; the end, if that is known.
        ended: when it ended; None while no end is known.
        error: the name of the error by which it ended; None if it was stopped or done.
        message: what the error says.
    """

    run: str
    started: int
    seen: int
    ended: int | None = None
    error: str | None = None
    message: str | None = None

    @property
    def code(self) -> str | None:
        """The code of the error; None if it has none, as others than Millpond's."""
        return code_in(self.message or "")


@dataclass(frozen=True)
class Runs:
    """The runs of a query.

    Attributes:
        query: the query's id.
        name: the query's name, if it has one.
        begun: how many runs there were.
        last: the last of them, the first one first.
    """

    query: str
    name: str | None = None
    begun: int = 0
    last: tuple[Run, ...] = ()

    @property
    def restarts(self) -> int:
        """The number of times that the query was started again."""
        return max(0, self.begun - 1)

    def named(self, name: str | None) -> Self:
        """Return the runs with this name of the query, if it is known."""
        return self if name is None else replace(self, name=name)

    def seen(self, run: str, started: int, at: int) -> Self:
        """Return the runs, with one seen alive.

        Args:
            run: its id.
            started: when it was started, if this is the first that is told of it.
            at: the moment.
        """
        if self.last and self.last[-1].run == run:
            return self._with_last(replace(self.last[-1], seen=max(at, self.last[-1].seen)))
        return replace(self, begun=self.begun + 1, last=(*self.last, Run(run, started, max(started, at)))[-LAST:])

    def ended(self, run: str, started: int, at: int, failure: str | None) -> Self:
        """Return the runs, with one ended.

        Args:
            run: its id.
            started: when it was started, if this is the first that is told of it.
            at: the moment.
            failure: what Spark tells of the error by which it ended, with traces; None if it ended without one.
        """
        error, message = (None, None) if failure is None else cause(failure)
        told = self.seen(run, started, at)
        return told._with_last(replace(told.last[-1], seen=at, ended=at, error=error, message=message))

    def _with_last(self, run: Run) -> Self:
        return replace(self, last=(*self.last[:-1], run))

    def to_json(self) -> str:
        content = {"runs": VERSION, **vars(self), "last": [asdict(one) for one in self.last]}
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the runs that ``to_json`` wrote.

        Raises:
            FormatError: this release does not know the version, or the text is something else.
        """
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _damaged(error, text) from error
        version = content.get("runs") if isinstance(content, dict) else None
        if type(version) is not int or version != VERSION:
            raise FormatError(
                f"the runs of a query have version {version!r}, but this release of Millpond knows version {VERSION}; "
                "run the release that wrote it, or a newer one"
            )
        try:
            return cls(
                read_text(content["query"]),
                _text(content["name"]),
                read_count(content["begun"]),
                tuple(map(_run, content["last"])),
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(error, text) from error


def is_own(failure: str) -> bool:
    """Return whether a text with traces tells of an error of Millpond's."""
    return _OWN.search(failure) is not None


def cause(failure: str) -> tuple[str, str]:
    r"""Return the name of the error that a text with traces tells of, and what it says.

    >>> cause("org.apache.spark.SparkException: Job aborted.\nCaused by: java.lang.OutOfMemoryError: heap")
    ('OutOfMemoryError', 'heap')
    >>> cause("Traceback (most recent call last):\n  File \"job.py\", line 7, in grow\nMemoryError")
    ('MemoryError', '')
    >>> cause("[STREAM_FAILED] it did not work")
    ('Exception', '[STREAM_FAILED] it did not work')
    """
    lines = failure.splitlines()
    told = [(place, found) for place, line in enumerate(lines) if (found := _OWN.search(line))]
    told = told or [(place, found) for place, line in enumerate(lines) if (found := _CAUSE.match(line))]
    if not told:
        return "Exception", _cut(failure.strip())
    place, found = told[-1]
    more = [found[2] or ""]
    for line in lines[place + 1 :]:
        if not line.strip() or line.lstrip().startswith(_TRACE):
            break
        more.append(line.strip())
    return found[1], _cut(_END.sub("", " ".join(more)))


def code_in(message: str) -> str | None:
    """Return the code with which a message of Millpond's ends; None if it is not one of these."""
    found = _CODED.search(message)
    return None if found is None else found[1]


def _cut(message: str) -> str:
    """Return as much of a message as is kept: its begin, and its code."""
    code = code_in(message)
    ending = "" if code is None else f" [{code}]"
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST - len(ending)]}{ending}"


_TRACE: Final = ("at ", "File ", "Traceback", "Caused by", "...", "JVM", "===", "SQLSTATE")
"""The beginnings of a trace's lines that tell of no error."""


def _run(content: Any) -> Run:
    ended = content["ended"]
    return Run(
        read_text(content["run"]),
        read_count(content["started"]),
        read_count(content["seen"]),
        None if ended is None else read_count(ended),
        _text(content["error"]),
        _text(content["message"]),
    )


def _text(content: Any) -> str | None:
    return None if content is None else read_text(content)


def _damaged(error: Exception, text: str) -> FormatError:
    return DamagedRecordError(f"the runs of a query are damaged ({error!r}): {text[:200]!r}; delete the file")
