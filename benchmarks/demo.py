"""The demo, as a new user runs it: within three minutes, `auto` above raw clicks above the logged order."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time

from benchmarks.base import Result


def run() -> list[Result]:
    """Seconds against the limit, and the gaps: the lower end of each interval against the upper end of the next."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-c",
            "from clickprism.cli import main; main()",
            "demo",
            "--json",
            "--out",
            folder,
        ]
        shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    took = time.perf_counter() - start
    measured = {row["method"]: row["new"] for row in json.loads(shown)["rows"]}
    ours, click, logged = (measured[name] for name in ("auto", "click", "logged order"))  # value, low, high
    return [
        Result("demo", took, 180.0, 1.0, "s; limit: three minutes", higher_is_better=False),
        Result("demo: auto, low end", ours[1], click[2], 1.0, "nDCG(exp)@10; peer: raw clicks, high end"),
        Result("demo: raw clicks, low end", click[1], logged[2], 1.0, "nDCG(exp)@10; peer: logged order, high end"),
    ]
