"""`python -m clickprism`: the command line, as `torchrun -m clickprism` starts it in every process."""

from clickprism.cli import main

if __name__ == "__main__":
    main()
