"""Stores of windows and sessions: their segments, and their columns."""
