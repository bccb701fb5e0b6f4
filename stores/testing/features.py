"""The features that a suite of the kit may opt out of.

Rule of this module: it imports nothing of the kit, so that code which names a feature needs neither pytest nor
hypothesis.
"""

from enum import StrEnum


class Feature(StrEnum):
    """A feature of most backends. A suite opts out of it in ``opt_outs``, and tests that need it are skipped."""

    FILES = "files"
    """The content is in files of the directory: damage to them is found, and a disk may be full."""
    ONE_FILE = "one file"
    """Writes make one file grow, so that a limit on the size of files stops them as a full disk does."""
    DEFAULTS = "defaults"
    """Without options it opens on any machine: no service has to be there first."""
