"""Functions of rows that come and go: each takes a value out again, as if it had never come.

Rule of this room: a result is that of the values that are there, whatever there was before, and in whichever order
they have come. Sums are whole numbers until a result is made of them, so taking out is exact. What cannot be taken out
of a state, such as a maximum, is found again among the values that are there, with how often each is: ``counted`` has
them in a store, where the next one is found by its place, and ``kept_rows`` in the state, of which the result is made
anew.
"""
