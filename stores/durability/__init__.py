"""Deltas, snapshots and manifests: the durable form of a task's state, the same for every backend."""
