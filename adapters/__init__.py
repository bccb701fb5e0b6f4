"""Bridges to other software: storage engines and Spark. Each adapter translates its peer's errors and quirks."""
