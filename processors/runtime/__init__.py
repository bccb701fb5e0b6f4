"""The parts of a driver: batches, processors, topologies, tasks, and the driver that runs them in this process."""
