"""What a driver knows: batches, processors, topologies, tasks, and the driver that runs them in this process."""
