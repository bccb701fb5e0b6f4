"""Why a row of a join has the match that it has, by what the join's stores still have.

Rule of this room: it knows packed rows and what stores have of single keys, and not where stores are. Each join tells
the rules by which it matches rows, in ``joins``.
"""
