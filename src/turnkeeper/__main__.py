"""`python -m turnkeeper` is the command `turnkeeper`."""

from turnkeeper.cli import main

if __name__ == "__main__":
    main()
