"""Why a row of a join has the match that it has, by what the join's stores still have.

Rule of this room: it knows packed rows and what stores have of single keys, and not where stores are. What a join does
is said once more here, version by version; nothing of the operators is called.
"""
