"""``python -m millpond`` is the command line, as ``millpond`` is."""

from millpond.cli import main

if __name__ == "__main__":
    main()
