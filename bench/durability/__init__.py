"""What befalls the durable state of a task and its local copies: damage, restores, upgrades and other partitions."""
