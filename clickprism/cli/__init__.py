"""The command line: each command parses, calls one library function, prints."""


def main() -> None:
    """Run the command line."""
