"""The options that a user configures: plain descriptions, checked when they are made or used."""
