"""Editing the state of a query on Spark that does not run: any process that reaches its files can do it.

``StateEditor.at`` finds the stores after the last micro-batch and puts and deletes rows. The next start of the query
goes on with what it commits. ``erase`` leaves no byte of a key.
"""

from millpond.adapters.edit.edit_report import EditReport
from millpond.adapters.edit.erasure import ErasureReport, erase
from millpond.adapters.edit.state_editor import StateEditor

__all__ = ["EditReport", "ErasureReport", "StateEditor", "erase"]
