"""A verb as a DataFrame: its inputs, the operator that it runs in or shares, and the columns of its result.

Rule of this room: it knows plans of Spark and operators; which verbs there are, and what they answer, is told to it.
"""
