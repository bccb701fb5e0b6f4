"""The logic of the aggregate functions over columns, each bound to the type of its column.

Rule of this room: it knows values in their physical form (``millpond.stores.encoding.rows``), and one state at a time
or a column of states; it knows neither keys nor, except for ``row_fold`` and ``top``, places in rows.
"""
