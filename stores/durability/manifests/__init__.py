"""The files that make one version of a task's state, and how long each is kept."""
