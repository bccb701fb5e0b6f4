"""Another process's calls of the system, each seen before it is done; what a kill or a loss of power there leaves."""
