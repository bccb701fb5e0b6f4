"""Verbs that take the rows of a key in the order of their times, once nothing earlier can come any more.

Rule of this room: which rows there are in time, and in which order, is told in ``rows_in_time``; what a verb makes of
rows in order knows neither watermarks nor buffers.
"""
