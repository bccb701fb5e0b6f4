"""The millpond backend for Spark Structured Streaming."""
