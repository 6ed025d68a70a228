"""`python -m sweep`, the same as the command `sweep`."""

from sweep.cli import main

if __name__ == "__main__":
    main()
