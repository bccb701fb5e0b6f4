"""The display of a job: its name, its place and its backend, as text and in a notebook.

Rule of this module: it shows what is known without a look at the state, and no secret.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from pyspark.sql import SparkSession

from millpond.adapters.spark.job.job import Job
from millpond.adapters.spark.job.options import BACKEND_CONF, DEFAULT_BACKEND
from millpond.stores.durability.storage.uris import shown


def facts(job: Job) -> dict[str, str]:
    """Return the facts that any job has, by the names of the arguments."""
    return {"application_id": job.application_id, "state_dir": shown(job.storage.uri), "backend": _backend(job)}


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


def _backend(job: Job) -> str:
    """Return the backend by its name or URL, or by its supplier's class."""
    asked = job.options.backend
    if asked is None:
        session = SparkSession.getActiveSession()
        asked = (session and session.conf.get(BACKEND_CONF, None)) or DEFAULT_BACKEND
    return shown(asked) if isinstance(asked, str) else type(asked).__name__
