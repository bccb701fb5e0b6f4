"""Questions about a verb's results: why a row has its match, what was to come out, and what other code makes."""
