"""One job: its options, who owns its state, and what it begins with."""
