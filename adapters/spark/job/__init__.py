"""One job: its options, the owner of its state, and its beginning."""
