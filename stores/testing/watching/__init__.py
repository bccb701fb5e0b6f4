"""Another process's calls of the system, each seen before it is done, and the effects of a kill or power loss there."""
