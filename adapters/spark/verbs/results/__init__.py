"""What can be asked of a verb's results: why a row has its match, and whether what was written is what comes out."""
