"""Bridges to what others wrote: storage engines and Spark. Each adapter translates its peer's errors and quirks."""
