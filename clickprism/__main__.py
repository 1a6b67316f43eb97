"""Run the command line: `python -m clickprism`, or `torchrun -m clickprism` for several processes."""

from clickprism.cli import main

if __name__ == "__main__":
    main()
