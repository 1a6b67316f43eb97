"""The command line: each command parses its options, calls one library function and prints the result."""

from clickprism.cli.app import main

__all__ = ["main"]
