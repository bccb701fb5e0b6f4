"""A checkpoint of Spark's that goes on with other operators and sources than it was begun with, or as a fork."""
