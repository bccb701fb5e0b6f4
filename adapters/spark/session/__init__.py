"""The SparkSession, its checkpoints, and what is sent to its workers."""
