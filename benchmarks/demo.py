"""The demo, as a new user runs it: within three minutes, ceiling above debiased above floor beyond their intervals."""

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
    methods = json.loads(shown)["methods"]
    labels, dla, click = (methods[name] for name in ("labels", "dla", "click"))
    return [
        Result("demo", took, 180.0, 1.0, "s; limit: three minutes", higher_is_better=False),
        Result("demo: labels, low end", labels["low"], dla["high"], 1.0, "nDCG(exp)@10; peer: dla, high end"),
        Result("demo: dla, low end", dla["low"], click["high"], 1.0, "nDCG(exp)@10; peer: click, high end"),
    ]
