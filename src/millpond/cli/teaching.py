"""What stands below the options in the help of a command: examples, exit codes, and what to read next.

Rule of this module: examples are command lines that the real parser takes; a test parses each.
"""


def lesson(*examples: str, codes: str = "", read: str) -> str:
    """The epilog of a command.

    Args:
        examples: whole command lines; what follows a ``#`` is a comment of the shell.
        codes: what the exit codes mean beyond what they mean everywhere.
        read: the page of the documentation to read next.
    """
    lines = ["Examples:", *examples, *([f"Exit codes: {codes}"] if codes else []), f"Read next: {read}"]
    return "\n\n".join(lines)
