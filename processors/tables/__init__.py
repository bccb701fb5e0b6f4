"""Operators on tables, and how processors read and keep them."""
