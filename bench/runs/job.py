"""The job that the program of a run is given.

Rule of this module: it is JSON, since a person who debugs a run wants to read it.
"""

import json
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Self


@dataclass(frozen=True, kw_only=True)
class RunJob:
    """The run to make; subclasses say what a benchmark needs to know, as values of JSON and dataclasses of them.

    Attributes:
        directory: where everything goes; it is not there yet.
        result: the file for what came of it.
    """

    directory: str
    result: str

    def text(self) -> str:
        """Return the job as a program reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the job that ``text`` gave."""
        told = json.loads(text)
        for field in fields(cls):
            if isinstance(field.type, type) and is_dataclass(field.type):
                told[field.name] = field.type(**told[field.name])
        return cls(**told)
