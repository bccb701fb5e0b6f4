"""Functions of rows that come and go: each takes a value out again, as if it had never come.

Rule of this room: a result is that of the current values, whatever there was before, and in whichever order they have
come. Sums are whole numbers until a result is made of them, so taking out is exact. A result that does not
allow it, such as a maximum, is found again among the current values, which are counted: ``counted`` has them in a
store, where the next one is found by its place, and ``kept_rows`` in the state, of which the result is made anew.
"""
