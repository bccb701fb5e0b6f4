"""The SparkSession, its checkpoints, and the functions that are sent to its workers."""
