"""What any distributed driver needs: what runs where, which task gets a record, how records travel, how a task runs.

Rule of this room: it knows topologies, tasks and bytes, but no engine that could carry them.
"""
