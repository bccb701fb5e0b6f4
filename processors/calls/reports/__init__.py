"""Reports that calls return instead of rows: graces and their costs, rows that differ, and changed code's effect.

Rule of this room: it counts and shows what others have measured and compared, and knows no verb.
"""
