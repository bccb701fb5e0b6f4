"""Verbs that take the rows of a key in the order of their times, once nothing earlier can come any more.

Rule of this room: ``rows_in_time`` above decides which rows are in time, and in which order; the work of a verb on
ordered rows knows neither watermarks nor buffers.
"""
