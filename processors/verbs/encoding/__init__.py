"""Bytes and Python values of keys, rows and states of verbs: each form is written and read in one module here.

Rule of this room: it knows no verb.
"""
