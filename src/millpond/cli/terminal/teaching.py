"""The help of a command: its text, and the examples, exit codes and further reading below the options.

Rule of this module: examples are command lines that the real parser takes; a test parses each.
"""

import inspect

import typer


def let_paragraphs_flow(app: typer.Typer) -> None:
    """Let lines of help end where the terminal does: of all paragraphs but the first, Typer keeps the ends of the code.

    Args:
        app: the whole command line, with its groups and commands.
    """
    for told in (app.registered_callback, *app.registered_commands):
        if told is not None and told.callback is not None:
            paragraphs = (inspect.getdoc(told.callback) or "").split("\n\n")
            told.help = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            let_paragraphs_flow(group.typer_instance)


def lesson(*examples: str, codes: str = "", read: str) -> str:
    """Return the epilog of a command.

    Args:
        examples: whole command lines; text after a ``#`` is a comment of the shell.
        codes: the meanings of exit codes beyond those of all commands.
        read: the page of the documentation to read next.
    """
    lines = ["Examples:", *examples, *([f"Exit codes: {codes}"] if codes else []), f"Read next: {read}"]
    return "\n\n".join(lines)
