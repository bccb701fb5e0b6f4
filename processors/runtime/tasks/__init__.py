"""Tasks, each a sub-topology over the records of one partition, and the driver that runs all of them in this process.

Rule of this room: it runs what ``millpond.processors.runtime`` describes, and nothing there knows of it.
"""
