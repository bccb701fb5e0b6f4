"""The common part of distributed drivers: the plan, the task of each record, its way there, and the run of a task.

Rule of this room: it knows topologies, tasks and bytes, but no engine that could carry them.
"""
