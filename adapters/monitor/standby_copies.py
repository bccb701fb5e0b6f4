"""The local copies that a standby keeps, by their files alone.

Rule of this module: it opens no engine and takes no lease; the seal beside a copy, which is made anew whenever somebody
has brought it on, tells when that was.
"""

from pathlib import Path

from millpond.adapters.monitor.diagnosis.figures import StandbyCopy


def standby_copies(directory: Path) -> list[StandbyCopy]:
    """Return the tasks that have copies in a local directory, each with when its copies were brought on last.

    Raises:
        OSError: the directory cannot be read.
    """
    used: dict[str, int] = {}
    for seal in directory.glob("*/**/.*.seal"):
        *_, application, task, _backend, _name = seal.parts
        at = seal.stat().st_mtime_ns // 1_000_000
        used[f"{application} {task}"] = max(at, used.get(f"{application} {task}", 0))
    return [StandbyCopy(task, at) for task, at in sorted(used.items())]
