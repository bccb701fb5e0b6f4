"""The conformance kit: a suite that the author of a third-party backend subclasses."""
