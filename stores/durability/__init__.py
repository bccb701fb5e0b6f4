"""Deltas, snapshots and the manifests that name them: the durable form of a task's state, the same for every backend."""
