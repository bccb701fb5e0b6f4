"""In which order records of several inputs are taken, and how results come back in order."""
