"""What any distributed driver needs: which part runs where, which task a record goes to, how records travel, and how a
task runs over what has arrived.

Rule of this room: it knows topologies, tasks and bytes, but no engine that could carry them.
"""
