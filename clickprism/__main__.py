"""Run the command line: `python -m clickprism`."""

from clickprism.cli import main

if __name__ == "__main__":
    main()
