"""The command line: each command parses, calls one library function, prints."""


def main() -> None:
    """Run the command line."""
    import os

    # Without this, idle OpenMP threads spin: two processes on two cores then take several times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from clickprism.cli_old.app import app

    app(prog_name="clickprism")
