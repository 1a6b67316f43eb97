"""How quick the package and its command line answer."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.base import Result, seconds


def run() -> list[Result]:
    """`import clickprism` against .3 s, `clickprism --help` against .5 s, a bare interpreter taken off neither."""
    imported = seconds(lambda: _python("import clickprism"), repeats=7)
    helped = seconds(
        lambda: _python("import sys; sys.argv = ['clickprism', '--help']; import clickprism.cli as c; c.main()")
    )
    return [
        Result("import clickprism", imported, 0.3, 1.0, "s; limit: .3", higher_is_better=False),
        Result("clickprism --help", helped, 0.5, 1.0, "s; limit: .5", higher_is_better=False),
    ]


def _python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
