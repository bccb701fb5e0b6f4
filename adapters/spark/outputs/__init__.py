"""Outputs for the rows of several sinks that one query writes."""
