"""Watching queries: a line of the log for each micro-batch, and metrics of OpenTelemetry."""
