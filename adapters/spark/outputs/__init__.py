"""Where the rows of several sinks go that one query writes."""
