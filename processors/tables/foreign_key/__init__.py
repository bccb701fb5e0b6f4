"""Foreign-key table-table join: each row of the left table finds the row of the foreign table that it names (KIP-213).

The rows that belong together live in different tasks, so the tasks exchange messages::

    left task       a changed row subscribes at its foreign key, with its value's hash; the result task gets the value
    foreign task    keeps the subscriptions; answers each, and all of a key again when its foreign value changes
    result task     keeps the left values; joins an answer with the one that asked for it, and drops stale answers

The three never form a cycle, so a job can run them one after the other: where the foreign table is in the left tasks,
the foreign tasks have copies of the stores behind it. They are the modules ``subscribing``, ``answering`` and
``results``; ``messages`` draws what they exchange.

KIP-914: an update of a versioned side that is not its key's latest is counted and ignored.
"""
